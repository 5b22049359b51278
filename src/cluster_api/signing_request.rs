//! A CertificateSigningRequest: what was asked for, by whom, and what became of it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClusterApi, Kubectl, TokenConnection, Watch, decoded, is_name, unusable};
use crate::kind;
use attestation::bundle::is_attestation;
use crypto::certificate::{CertificationRequest, PublicKey};
use crypto::verify::is_signed_by_its_key;
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{excerpt, quoted};

/// What the server is asked to do when a request is read, for messages.
const PURPOSE: &str = "show the CertificateSigningRequest";
pub(super) const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// The signer of client certificates for the API server.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The shortest life that a certificate can be asked for, in seconds.
pub const SHORTEST: u32 = 600;
/// The beginning of the names of users that are no persons: service accounts, nodes, components.
const CLUSTERS_OWN: &str = "system:";
/// What a client certificate of the signer can be used for. The first use is required.
const ALLOWED: [&str; 3] = ["client auth", "digital signature", "key encipherment"];
/// The key in `extra` by which the API server tells the certificate that a request came with (1.32 and later).
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The pause between the first two looks at a request that nobody has decided on, and the longest one later.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The pause between two looks while a watch tells of changes.
const WATCHED_PAUSE: Duration = Duration::from_secs(120);

/// The longest time that a request is waited for, however much was asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The time between two calls that say how long a request is still waited for.
const TICK: Duration = Duration::from_secs(1);

/// What is seen of a request while it is [waited](SigningRequest::wait) for.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// Nobody has decided on the request. It is waited for so much longer.
    Pending { left: Duration },
    /// The request is approved, and waits for the cluster's signer.
    Approved,
}

/// A CertificateSigningRequest as the API server gave it.
#[derive(Clone, Debug, Deserialize)]
pub struct SigningRequest {
    pub metadata: Metadata,
    pub spec: RequestSpec,
    #[serde(default)]
    status: RequestStatus,
    /// The whole object, to be sent back.
    #[serde(skip)]
    object: Value,
    /// The PKCS#10 request, in PEM.
    #[serde(skip)]
    pub pem: String,
}

/// What identifies a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// An id that no other request has, not even one of the same name.
    pub uid: String,
    resource_version: String,
    /// When the request was made, in RFC 3339.
    #[serde(default)]
    pub creation_timestamp: Option<String>,
}

/// What was asked for, and by whom, as far as the API server knew them.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestSpec {
    request: String,
    pub signer_name: String,
    /// How long the certificate is to be valid; `None` for the signer's choice.
    #[serde(default)]
    pub expiration_seconds: Option<i64>,
    #[serde(default)]
    pub usages: Vec<String>,
    #[serde(default)]
    pub username: String,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
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

/// What is recorded with an approval, in the request's condition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApprovalRecord {
    pub reason: ApprovalReason,
    /// What was looked at, in words for people.
    pub message: String,
}

/// What an approval rests on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ApprovalReason {
    /// The request was compared with its requester.
    Compared,
    /// An attestation that the key is in hardware was verified, too.
    Attested,
}

impl ApprovalReason {
    /// The reason in the request's condition.
    fn name(self) -> &'static str {
        match self {
            Self::Compared => "ComparedByApprover",
            Self::Attested => "HardwareAttested",
        }
    }
}

/// A request that can't be looked at, so that nobody should approve it.
#[derive(Clone, Debug)]
pub struct UnusableRequest {
    /// The name that the API server gave. It may be one that doesn't lead to the request.
    pub name: String,
    pub error: Error,
}

/// What became of a request that was neither denied nor failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestState {
    Pending,
    Approved,
    /// The certificate, followed by any others that the signer added, in PEM.
    Issued(String),
}

impl SigningRequest {
    fn of(api: &dyn ClusterApi, object: Value) -> Result<Self, Error> {
        let mut request: Self = decoded(api.cluster(), PURPOSE, object.clone())?;
        let is_whole = object.is_object()
            && object.get("status").is_none_or(Value::is_object)
            // Without a version, sending the object back would approve whatever has this name by then.
            && !request.metadata.resource_version.is_empty()
            // Another name could lead to another path.
            && is_name(&request.metadata.name);
        if !is_whole {
            return Err(unusable(api.cluster(), PURPOSE, "it is no whole object"));
        }
        request.pem = from_base64(&request.spec.request).unwrap_or_default();
        request.object = object;
        Ok(request)
    }

    /// Lists the requests for [`SIGNER`] that nobody has decided on, in the API server's order.
    pub fn pending(kubectl: &Kubectl) -> Result<Vec<Result<Self, UnusableRequest>>, Error> {
        let mut pending = Vec::new();
        for object in kubectl.signing_requests(SIGNER)? {
            if object.pointer("/spec/signerName").and_then(Value::as_str) != Some(SIGNER) {
                continue;
            }
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            let name = name.unwrap_or_default().to_owned();
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let is_decided = conditions.is_some_and(|conditions| !conditions.is_empty());
            match Self::of(kubectl, object) {
                Ok(request) if matches!(request.state(), Ok(RequestState::Pending)) => {
                    pending.push(Ok(request));
                }
                Err(error) if !is_decided => pending.push(Err(UnusableRequest { name, error })),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(pending)
    }

    /// Reads the request of this name; `None` if there is none.
    pub fn read(api: &dyn ClusterApi, name: &str) -> Result<Option<Self>, Error> {
        // The name may come from elsewhere, and must not lead to another path.
        if !is_name(name) {
            let name = excerpt(name);
            let text = format!("\"{name}\" can't be the name of a CertificateSigningRequest");
            let help = Help::from("give the name that `kubectl get certificatesigningrequests")
                .and(HelpPart::Key)
                .and("` shows");
            return Err(Error::new(Exit::Request, text).help(help));
        }
        let Some(object) = api.signing_request(name)? else { return Ok(None) };
        let found = Self::of(api, object)?;
        if found.metadata.name != name {
            return Err(unusable(api.cluster(), PURPOSE, "it has another name"));
        }
        Ok(Some(found))
    }

    /// Reads the requests of these names, and returns the one whose name is the last in the list; `None` if none
    /// exists.
    pub fn last_of(api: &dyn ClusterApi, names: &[String]) -> Result<Option<Self>, Error> {
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            return Err(Error::internal(format!("{name:?} is no name of a request")));
        }
        let mut found = Vec::new();
        for object in api.named_requests(names)? {
            let request = Self::of(api, object)?;
            if !names.contains(&request.metadata.name) {
                return Err(unusable(api.cluster(), PURPOSE, "it has another name"));
            }
            found.push(request);
        }
        Ok(found
            .into_iter()
            .max_by_key(|request| names.iter().position(|name| *name == request.metadata.name)))
    }

    /// Makes a request with this PKCS#10. The certificate is to be valid for `seconds`, which is not below
    /// [`SHORTEST`]; `None` leaves that to the signer.
    pub fn create(
        api: &dyn ClusterApi,
        name: &str,
        pem: &str,
        seconds: Option<u32>,
    ) -> Result<Self, Error> {
        let mut object = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": BASE64_STANDARD.encode(pem),
                "signerName": SIGNER,
                // The signer refuses a request for more usages.
                "usages": ["client auth", "digital signature"],
            },
        });
        if let Some(seconds) = seconds {
            object["spec"]["expirationSeconds"] = seconds.into();
        }
        match api.create(PATH, &object, "make a CertificateSigningRequest") {
            Ok(made) => Self::of(api, made),
            // The same command may have made it at the same time.
            Err(error) => Self::read(api, name)?.ok_or(error),
        }
    }

    /// The credentials with which the request was made: `X509SHA256=` and the hash of a certificate, or `JTI=` and the
    /// number of a token. Empty before Kubernetes 1.32, and for other credentials.
    pub fn credential_ids(&self) -> &[String] {
        self.spec.extra.get(CREDENTIAL_ID).map_or(&[], Vec::as_slice)
    }

    /// What became of the request. An error if it was denied, or if the signer won't sign it.
    pub fn state(&self) -> Result<RequestState, Error> {
        let name = &self.metadata.name;
        let condition =
            |kind: &str| self.status.conditions.iter().find(|condition| condition.kind == kind);
        let refusals = [
            ("Denied", format!("the request {name} was denied")),
            ("Failed", format!("the cluster's signer has not signed the request {name}")),
        ];
        let refusal = refusals.iter().find_map(|(kind, text)| Some((text, condition(kind)?)));
        if let Some((text, Condition { reason, message, .. })) = refusal {
            let texts = [text, reason, message].map(String::as_str);
            let texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
            let text = texts.join(": ");
            return Err(Error::new(Exit::Cluster, text).help(
                "ask who approves requests in the cluster; the requester's command makes another one with --again",
            ));
        }
        let issued = self.status.certificate.as_deref().filter(|text| !text.is_empty());
        Ok(match (issued.and_then(from_base64), condition("Approved")) {
            (Some(pem), _) => RequestState::Issued(pem),
            (None, Some(_)) => RequestState::Approved,
            (None, None) => RequestState::Pending,
        })
    }

    /// What was recorded with the request's approval, which an approver can make up; `None` if it isn't approved.
    pub fn approval_message(&self) -> Option<&str> {
        let mut conditions = self.status.conditions.iter();
        let approval = conditions.find(|condition| condition.kind == "Approved")?;
        Some(&approval.message)
    }

    /// Looks at the request until it is issued, denied or failed, or `limit` has passed. `progress` is called about once a
    /// second until somebody has decided, and when it is approved.
    pub fn wait(
        &self,
        api: &dyn ClusterApi,
        limit: Duration,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + limit.min(LONGEST_WAIT);
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut is_approved = false;
        let mut pace = None::<LookPace>;
        loop {
            let found = self.read_again(api)?;
            match found.state() {
                Ok(RequestState::Pending) => {}
                Ok(RequestState::Approved) if is_approved => {}
                Ok(RequestState::Approved) => {
                    is_approved = true;
                    if let Some(pace) = &mut pace {
                        pace.quicken();
                    }
                    progress(Progress::Approved);
                }
                Ok(RequestState::Issued(_)) | Err(_) => return Ok(found),
            }
            if left().is_zero() {
                return Ok(found);
            }
            let pace = pace.get_or_insert_with(|| {
                LookPace::new(api.watch_signing_request(&self.metadata.name))
            });
            pace.wait(left(), &mut || {
                if !is_approved {
                    progress(Progress::Pending { left: left() });
                }
            });
        }
    }

    /// Reads the request again. An error if it is no longer there.
    fn read_again(&self, api: &dyn ClusterApi) -> Result<Self, Error> {
        let name = &self.metadata.name;
        let found = Self::read(api, name)?;
        // The cluster clears requests away: decided ones after an hour, others after a day.
        found.filter(|found| found.metadata.uid == self.metadata.uid).ok_or_else(|| {
            let text = format!("the request {name} was removed from the cluster");
            Error::new(Exit::Cluster, text)
                .help("run the same command again: it makes another request")
        })
    }

    /// The error that there is no certificate after the time `limit`, which is in words. Either nobody has approved the
    /// request, and `help` says what to do then, or no signer has signed it.
    pub fn late(&self, limit: &str, help: &str) -> Error {
        let name = &self.metadata.name;
        if matches!(self.state(), Ok(RequestState::Approved)) {
            let text = format!(
                "the request {name} is approved, and the cluster's signer has not signed it within {limit}"
            );
            return Error::new(Exit::Cluster, text).help(format!(
                "ask the administrators of the cluster whether it has a signer for {SIGNER}: some hosted ones have none"
            ));
        }
        let text = format!("the request {name} was not approved within {limit}");
        Error::new(Exit::Cluster, text).help(help)
    }

    /// Whether both are the same request, and nothing of it has changed between them.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.metadata.uid == other.metadata.uid
            && self.metadata.resource_version == other.metadata.resource_version
    }

    /// Whether this is that request, as it is with this approval.
    pub fn is_approved_version_of(&self, other: &Self, record: &ApprovalRecord) -> bool {
        self.metadata.uid == other.metadata.uid
            && self.approval_message() == Some(record.message.as_str())
    }

    /// The object that was read, with an approval added to it.
    pub fn approved(&self, record: &ApprovalRecord) -> Value {
        let mut object = self.object.clone();
        let conditions = &mut object["status"]["conditions"];
        let approval = json!({
            "type": "Approved",
            "status": "True",
            "reason": record.reason.name(),
            "message": record.message,
        });
        match conditions.as_array_mut() {
            Some(conditions) => conditions.push(approval),
            None => *conditions = json!([approval]),
        }
        object
    }

    /// Removes this request, but not another one that has its name by now. It is no error if the request is no longer
    /// there.
    pub fn remove(&self, api: &TokenConnection) -> Result<(), Error> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": self.metadata.uid},
        });
        let path = format!("{PATH}/{}", self.metadata.name);
        let purpose = "remove the CertificateSigningRequest";
        match api.send(&Method::DELETE, &path, Some(&options), purpose) {
            Err(error) if !error.is(&kind::NOT_FOUND) => Err(error),
            _ => Ok(()),
        }
    }
}

/// What a request may ask for although its requester doesn't have it.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    pub groups: Vec<String>,
    /// Whether a policy lets the requester ask for this user.
    pub is_user: bool,
}

/// Why this request, whose PKCS#10 is `csr`, should not be approved: an approver has to compare this, since the signer
/// doesn't. Each reason follows the words `the request `.
pub fn objections(
    request: &SigningRequest,
    csr: &CertificationRequest,
    granted: &Granted,
) -> Vec<String> {
    let spec = &request.spec;
    let found = [
        own_account(spec),
        another_user(spec, csr).filter(|_| !granted.is_user),
        foreign_groups(spec, csr, &granted.groups),
        more_than_a_user(csr),
        extensions(csr),
        another_signature(csr),
        no_usage(spec),
        another_signer(spec),
        other_usages(spec),
        unfit_usage(spec, csr),
    ];
    found.into_iter().flatten().collect()
}

/// The certificate would outlive the account, or the pod whose token was used.
fn own_account(spec: &RequestSpec) -> Option<String> {
    spec.username.starts_with(CLUSTERS_OWN).then(|| {
        format!(
            "is made by {:?}, an account of the cluster itself, whose credentials are to be short-lived",
            spec.username
        )
    })
}

fn another_user(spec: &RequestSpec, csr: &CertificationRequest) -> Option<String> {
    match &csr.user {
        Some(name) if *name == spec.username => None,
        Some(name) => Some(format!("is for {name:?}, who is not the requester")),
        None => Some("names no user (CN)".to_owned()),
    }
}

fn foreign_groups(
    spec: &RequestSpec,
    csr: &CertificationRequest,
    granted: &[String],
) -> Option<String> {
    let is_foreign = |group: &&String| !spec.groups.contains(group) && !granted.contains(group);
    let foreign: Vec<_> = csr.groups.iter().filter(is_foreign).cloned().collect();
    (!foreign.is_empty())
        .then(|| format!("names groups that the requester isn't in: {}", quoted(&foreign)))
}

fn more_than_a_user(csr: &CertificationRequest) -> Option<String> {
    let text = "has a subject with more than one CN, or more than CN and O";
    (!csr.is_plain).then(|| text.to_owned())
}

/// The signer copies extensions, such as alternative names, into the certificate.
fn extensions(csr: &CertificationRequest) -> Option<String> {
    let text = "asks for extensions, such as alternative names";
    (!csr.attributes.iter().all(is_attestation)).then(|| text.to_owned())
}

/// Whoever has made such a request need not have the key.
fn another_signature(csr: &CertificationRequest) -> Option<String> {
    let text = "is not signed with the key that it is for";
    (!is_signed_by_its_key(csr)).then(|| text.to_owned())
}

fn no_usage(spec: &RequestSpec) -> Option<String> {
    spec.usages.is_empty().then(|| "names no usage".to_owned())
}

fn another_signer(spec: &RequestSpec) -> Option<String> {
    (spec.signer_name != SIGNER)
        .then(|| format!("is for the signer {:?}, not {SIGNER}", spec.signer_name))
}

fn other_usages(spec: &RequestSpec) -> Option<String> {
    let usages: Vec<_> = spec.usages.iter().map(String::as_str).collect();
    let has_client_auth = usages.is_empty() || usages.contains(&ALLOWED[0]);
    if has_client_auth && usages.iter().all(|usage| ALLOWED.contains(usage)) {
        return None;
    }
    let usages = listed(&usages, "and");
    Some(format!("is for the usages {usages}, not for client auth alone"))
}

/// An ML-DSA key only signs (RFC 9881, section 5).
fn unfit_usage(spec: &RequestSpec, csr: &CertificationRequest) -> Option<String> {
    let is_for_encryption = spec.usages.iter().any(|usage| usage == "key encipherment");
    let only_signs = matches!(csr.public_key, PublicKey::MlDsa { .. });
    (is_for_encryption && only_signs).then(|| {
        format!("is for the usage key encipherment, which a key {} can't have", csr.public_key)
    })
}

fn from_base64(text: &str) -> Option<String> {
    String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()
}

/// When a request is looked at again: as soon as a watch tells of a change, or else after a pause that grows.
struct LookPace {
    watch: Option<Watch>,
    pause: Duration,
}

impl LookPace {
    fn new(watch: Option<Watch>) -> Self {
        Self { watch, pause: SHORTEST_PAUSE }
    }

    /// Looks again soon from now on. What is left to wait for is the work of a program, such as a signer, which is quick.
    fn quicken(&mut self) {
        self.pause = SHORTEST_PAUSE;
    }

    /// Waits until the next look, for `left` at most. `tick` is called about once a second.
    fn wait(&mut self, left: Duration, tick: &mut dyn FnMut()) {
        let is_watched = self.watch.as_ref().is_some_and(Watch::is_live);
        let pause = if is_watched { WATCHED_PAUSE } else { self.pause };
        let next = Instant::now() + pause.min(left);
        while let Some(rest) = next.checked_duration_since(Instant::now()) {
            tick();
            if self.has_news(rest.min(TICK)) {
                break;
            }
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Waits for this time, or until the watch reports something. Returns whether there may be something new to see.
    fn has_news(&mut self, time: Duration) -> bool {
        if let Some(watch) = &mut self.watch {
            return watch.wait(time);
        }
        thread::sleep(time);
        false
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ML_DSA_65};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_leads_to_no_other_path() {
        assert!(is_name("jane-0a1b2c3d4e"));
        let long = "a".repeat(254);
        for name in ["", ".", "..", "a/b", "a/../b", "A", "a?x", "-a", "a..b", "a\n", &long] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn an_ml_dsa_key_has_no_use_for_key_encipherment() {
        for (algorithm, objection) in [
            (
                &PKCS_ML_DSA_65,
                Some("is for the usage key encipherment, which a key ML-DSA-65 can't have"),
            ),
            (&PKCS_ECDSA_P256_SHA256, None),
        ] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let pem = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
            let csr = CertificationRequest::from_pem(&pem).unwrap();
            let spec = |usage: &str| -> RequestSpec {
                let usages = ["client auth", usage];
                let spec = json!({"request": "", "signerName": SIGNER, "usages": usages});
                serde_json::from_value(spec).unwrap()
            };
            assert_eq!(unfit_usage(&spec("key encipherment"), &csr).as_deref(), objection);
            assert_eq!(unfit_usage(&spec("digital signature"), &csr), None);
        }
    }
}
