//! A CertificateSigningRequest: what was asked for, by whom, and what became of it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, UnusableName};
use super::{ApiAnswer, ApiMethod, ApiRequest, ClusterApi, decoded, unusable};
use crate::printable::excerpt;

const API_VERSION: &str = "certificates.k8s.io/v1";
const KIND: &str = "CertificateSigningRequest";
/// In characters, of any object's name.
const LONGEST_NAME: usize = 253;
const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The signer of client certificates for the API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What a certificate of that signer is for; a request for more fails.
pub const USAGES: [&str; 2] = ["client auth", "digital signature"];
/// The shortest life that can be asked for, in seconds.
pub const SHORTEST: u32 = 600;
/// By which the API server tells the certificate that a request came with (1.32 and later).
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Between two looks at a request that nobody has decided on: at first, and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(10)];

/// A CertificateSigningRequest as the API server gave it.
#[derive(Clone, Debug)]
pub struct SigningRequest {
    /// All of it, to be sent back.
    object: Value,
    known: Known,
    /// PKCS#10, as PEM.
    pub pem: String,
    /// The texts of the answer's Warning headers.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Known {
    metadata: Metadata,
    spec: RequestSpec,
    #[serde(default)]
    status: RequestStatus,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    creation_timestamp: Option<String>,
}

/// What was asked for, and who asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestSpec {
    request: String,
    signer_name: String,
    #[serde(default)]
    expiration_seconds: Option<i64>,
    #[serde(default)]
    usages: Vec<String>,
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct RequestStatus {
    certificate: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// What became of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestState {
    /// Approved; the signer has still to sign it.
    Approved,
    Denied {
        reason: String,
        message: String,
    },
    /// The signer will not sign it.
    Failed {
        reason: String,
        message: String,
    },
    /// The certificate, and behind it any that the signer added, as PEM.
    Issued(String),
    /// Nobody has decided on it.
    Pending,
}

/// How a wait for a request ended.
#[derive(Clone, Debug)]
pub enum RequestEnd {
    /// It is issued, denied or failed; or else the wait was too short.
    Reached(Box<SigningRequest>),
    /// It is no longer there, or another one is there under its name: removed by hand, or by the cluster,
    /// which clears those away that were decided on (after an hour) or weren't (after a day).
    Removed,
}

/// A request to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewSigningRequest<'a> {
    /// Fit for a URL: lower-case letters, digits, hyphens and dots.
    pub name: &'a str,
    /// PKCS#10, as PEM.
    pub pem: &'a str,
    /// `None` for the signer's own; not below [`SHORTEST`].
    pub seconds: Option<u32>,
}

impl SigningRequest {
    fn of(
        api: &dyn ClusterApi,
        request: &ApiRequest<'_>,
        answer: ApiAnswer,
    ) -> Result<Self, ApiError> {
        let known: Known = decoded(api, request, answer.object.clone())?;
        let status = answer.object.get("status");
        let is_whole = answer.object.is_object()
            && status.is_none_or(Value::is_object)
            // Without it, sending the object back would approve whatever is there by then.
            && !known.metadata.resource_version.is_empty();
        if !is_whole {
            return Err(unusable(api.cluster(), request, &"it is no whole object").into());
        }
        let pem = BASE64_STANDARD.decode(&known.spec.request);
        let pem = pem.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let pem = pem.unwrap_or_default();
        Ok(Self { object: answer.object, known, pem, warnings: answer.warnings })
    }

    pub fn name(&self) -> &str {
        &self.known.metadata.name
    }

    /// No other request has it, not even one of the same name.
    pub fn uid(&self) -> &str {
        &self.known.metadata.uid
    }

    /// When it was made (RFC 3339).
    pub fn created(&self) -> Option<&str> {
        self.known.metadata.creation_timestamp.as_deref()
    }

    pub fn signer(&self) -> &str {
        &self.known.spec.signer_name
    }

    /// How long the certificate is to live; `None` for the signer's own.
    pub fn seconds(&self) -> Option<i64> {
        self.known.spec.expiration_seconds
    }

    pub fn usages(&self) -> &[String] {
        &self.known.spec.usages
    }

    /// Who asked, as the API server knew them.
    pub fn requester(&self) -> &str {
        &self.known.spec.username
    }

    /// The groups of who asked, as the API server knew them.
    pub fn requester_groups(&self) -> &[String] {
        &self.known.spec.groups
    }

    /// What else the API server knew of who asked.
    pub fn requester_extra(&self) -> &BTreeMap<String, Vec<String>> {
        &self.known.spec.extra
    }

    /// What the request was authenticated with: `X509SHA256=` and the hash of a certificate, or `JTI=` and the
    /// number of a token. Empty before Kubernetes 1.32, and for other credentials.
    pub fn credential_ids(&self) -> &[String] {
        let ids = self.known.spec.extra.get(CREDENTIAL_ID);
        ids.map_or(&[], Vec::as_slice)
    }

    pub fn state(&self) -> RequestState {
        let RequestStatus { certificate, conditions } = &self.known.status;
        let condition = |kind: &str| conditions.iter().find(|it| it.kind == kind);
        let told = |it: &Condition| (it.reason.clone(), it.message.clone());
        if let Some((reason, message)) = condition("Denied").map(told) {
            return RequestState::Denied { reason, message };
        }
        if let Some((reason, message)) = condition("Failed").map(told) {
            return RequestState::Failed { reason, message };
        }
        let issued = certificate
            .as_ref()
            .filter(|text| !text.is_empty())
            .and_then(|text| BASE64_STANDARD.decode(text).ok())
            .and_then(|bytes| String::from_utf8(bytes).ok());
        match (issued, condition("Approved")) {
            (Some(pem), _) => RequestState::Issued(pem),
            (None, Some(_)) => RequestState::Approved,
            (None, None) => RequestState::Pending,
        }
    }

    fn is_ended(&self) -> bool {
        !matches!(self.state(), RequestState::Approved | RequestState::Pending)
    }
}

/// Makes a request for a client certificate.
///
/// # Errors
///
/// The server refuses: one of this name is there, this user may not, or `system:masters` is asked for.
pub fn create(
    api: &dyn ClusterApi,
    new: &NewSigningRequest<'_>,
) -> Result<SigningRequest, ApiError> {
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": new.name},
        "spec": {
            "request": BASE64_STANDARD.encode(new.pem),
            "signerName": SIGNER,
            "usages": USAGES,
        },
    });
    if let Some(seconds) = new.seconds {
        object["spec"]["expirationSeconds"] = seconds.into();
    }
    let request = ApiRequest {
        method: ApiMethod::Create,
        path: PATH,
        body: Some(&object),
        purpose: "make a CertificateSigningRequest",
    };
    let answer = api.send(&request)?;
    SigningRequest::of(api, &request, answer)
}

/// The request of this name; `None` if there is none.
///
/// # Errors
///
/// The server refuses, or there is no answer.
pub fn read(api: &dyn ClusterApi, name: &str) -> Result<Option<SigningRequest>, ApiError> {
    let request = ApiRequest {
        method: ApiMethod::Get,
        path: &path_of(name)?,
        body: None,
        purpose: "show the CertificateSigningRequest",
    };
    match api.send(&request) {
        Ok(answer) => Ok(Some(SigningRequest::of(api, &request, answer)?)),
        // Also what an API server says that has no such API.
        Err(ApiError::Refused(refused)) if refused.code == Some(404) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Looks at the request until it has ended, or `limit` has passed.
///
/// # Errors
///
/// The server refuses, or there is no answer.
pub fn wait(
    api: &dyn ClusterApi,
    request: &SigningRequest,
    limit: Duration,
) -> Result<RequestEnd, ApiError> {
    let deadline = Instant::now() + limit;
    let [mut pause, longest] = PAUSES;
    loop {
        let found = read(api, request.name())?;
        let Some(found) = found.filter(|found| found.uid() == request.uid()) else {
            return Ok(RequestEnd::Removed);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if found.is_ended() || left.is_zero() {
            return Ok(RequestEnd::Reached(Box::new(found)));
        }
        // The signer takes no time to speak of.
        let next = match found.state() {
            RequestState::Approved => PAUSES[0],
            _ => pause,
        };
        thread::sleep(next.min(left));
        pause = (pause * 2).min(longest);
    }
}

/// Approves this request, by sending it back as it was read: another one under its name, or one that has
/// changed since, is a Conflict.
///
/// # Errors
///
/// The server refuses: this user may not, or the request is no longer what was read.
pub fn approve(
    api: &dyn ClusterApi,
    request: &SigningRequest,
    reason: &str,
    message: &str,
) -> Result<SigningRequest, ApiError> {
    let mut object = request.object.clone();
    let condition = json!({
        "type": "Approved",
        "status": "True",
        "reason": reason,
        "message": message,
    });
    let status = object.as_object_mut().map(|object| {
        let status = object.entry("status");
        status.or_insert_with(|| json!({}))
    });
    if let Some(status) = status.and_then(Value::as_object_mut) {
        let conditions = status.entry("conditions").or_insert(Value::Null);
        match conditions.as_array_mut() {
            Some(conditions) => conditions.push(condition),
            None => *conditions = json!([condition]),
        }
    }
    let request = ApiRequest {
        method: ApiMethod::Replace,
        path: &format!("{}/approval", path_of(request.name())?),
        body: Some(&object),
        purpose: "approve the CertificateSigningRequest",
    };
    let answer = api.send(&request)?;
    SigningRequest::of(api, &request, answer)
}

/// Removes this request, and no other one that has its name by now.
///
/// # Errors
///
/// The server refuses; that it is no longer there is none.
pub fn remove(api: &dyn ClusterApi, request: &SigningRequest) -> Result<(), ApiError> {
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": request.uid()},
    });
    let sent = api.send(&ApiRequest {
        method: ApiMethod::Delete,
        path: &path_of(request.name())?,
        body: Some(&options),
        purpose: "remove the CertificateSigningRequest",
    });
    match sent {
        Ok(_) => Ok(()),
        Err(ApiError::Refused(refused)) if refused.code == Some(404) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Where the request of this name is. A name from elsewhere can't lead to another path.
fn path_of(name: &str) -> Result<String, UnusableName> {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_inside = |byte: u8| is_part(byte) || matches!(byte, b'-' | b'.');
    let ends = [name.bytes().next(), name.bytes().next_back()];
    let is_name = name.len() <= LONGEST_NAME
        && name.bytes().all(is_inside)
        && ends.into_iter().all(|end| end.is_some_and(is_part))
        && !name.contains("..");
    match is_name {
        true => Ok(format!("{PATH}/{name}")),
        false => Err(UnusableName { name: excerpt(name) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_no_other_path() {
        assert!(path_of("jane-0a1b2c3d4e").is_ok_and(|it| it.ends_with("/jane-0a1b2c3d4e")));
        let long = "a".repeat(LONGEST_NAME + 1);
        for name in ["", ".", "..", "a/b", "a/../b", "A", "a?x", "-a", "a..b", "a\n", &long] {
            assert!(path_of(name).is_err(), "{name}");
        }
    }
}
