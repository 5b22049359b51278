//! A certificate from the signer of a cluster: the request, the wait for its approval, and what came of it.
//!
//! The request's name follows from the user and the key, so that the same command finds it again after an
//! interruption, and no second one is made.

#![forbid(unsafe_code)]

mod error;

use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

pub(crate) use self::error::IssuanceError;
use self::error::words;
use crate::certificate::{Certificate, CertificationRequest, PublicKey};
use crate::cluster_api::signing_request::{
    self, NewSigningRequest, RequestEnd, RequestState, SigningRequest,
};
use crate::cluster_api::{ApiError, ClusterApi};
use crate::enrollment::{Applicant, Csr, ExpectedCertificate, check_issued, fingerprint};
use crate::error::Error;
use crate::printable::{hex, shell_word};
use crate::process::unix_time;
use crate::report::{self, Progress};
use crate::start;

/// More requests under one name than a person makes.
const MOST: usize = 9;
/// Of what a request's name says of the user, in characters.
const LONGEST_USER: usize = 40;
/// Of what it says of the key, in hexadecimal digits.
const DIGITS: usize = 10;

/// What is asked for.
pub(super) struct WantedCertificate<'a> {
    /// The request's, as [`request_name`] gives it.
    pub(super) name: String,
    pub(super) applicant: &'a Applicant,
    pub(super) public_key: &'a PublicKey,
    /// How long it is to be valid; the signer's own choice without.
    pub(super) duration: Option<Duration>,
}

/// How it is asked for.
pub(super) struct Inquiry<'a> {
    pub(super) api: &'a dyn ClusterApi,
    /// The context's name, for the command that approves.
    pub(super) context: &'a str,
    /// The file that the person has named, for the same.
    pub(super) kubeconfig: Option<&'a Path>,
    pub(super) wait: Duration,
    /// Whether a request that has come to nothing is followed by another one.
    pub(super) again: bool,
}

/// What the cluster has issued.
pub(super) struct Issued {
    pub(super) certificate: Certificate,
    /// The certificates that follow it, in DER.
    pub(super) chain: Vec<Vec<u8>>,
    /// The request's.
    pub(super) name: String,
}

/// A request as it stands in the cluster, and what comes next.
pub(super) enum RequestStanding {
    /// To be made under this name.
    Absent(String),
    /// To be waited for.
    Open(Box<SigningRequest>),
    Issued(Box<Issued>),
}

impl RequestStanding {
    /// The request's.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Absent(name) => name,
            Self::Open(request) => request.name(),
            Self::Issued(issued) => &issued.name,
        }
    }
}

/// `jane-0a1b2c3d4e`, and for a renewal a part of the certificate that is renewed behind it.
///
/// # Errors
/// None for a key of a token.
pub(super) fn request_name(
    user: &str,
    key: &PublicKey,
    renewed: Option<&Certificate>,
) -> Result<String, Error> {
    let user: String = user
        .chars()
        .map(|it| it.to_ascii_lowercase())
        .map(|it| if it.is_ascii_alphanumeric() { it } else { '-' })
        .take(LONGEST_USER)
        .collect();
    let user = user.trim_matches('-');
    let mut parts = vec![if user.is_empty() { "user" } else { user }.to_owned()];
    let short = |digits: String| digits.chars().take(DIGITS).collect::<String>();
    parts.push(short(fingerprint(key)?));
    parts.extend(renewed.map(|it| short(hex(&Sha256::digest(it.der())))));
    Ok(parts.join("-"))
}

/// Looks for the request in the cluster; nothing is made.
///
/// # Errors
/// One was denied, failed, or answered with something else, and another one isn't wanted.
pub(super) fn standing(
    wanted: &WantedCertificate<'_>,
    asking: &Inquiry<'_>,
) -> Result<RequestStanding, Error> {
    let mut ended = None;
    for number in 1..=MOST {
        let name = match number {
            1 => wanted.name.clone(),
            _ => format!("{}-{number}", wanted.name),
        };
        let Some(request) = signing_request::read(asking.api, &name)? else {
            return match ended {
                Some(error) if !asking.again => Err(error),
                _ => Ok(RequestStanding::Absent(name)),
            };
        };
        match judged(request, wanted) {
            Ok(standing) => return Ok(standing),
            Err(error) => ended = Some(error),
        }
    }
    Err(ended.unwrap_or_else(|| Error::internal("requests without an end")))
}

/// Makes the request unless it is there, waits for its end, and gives the certificate, which is
/// the one that was asked for. `sign` has the key sign the request.
///
/// # Errors
/// [`IssuanceError`], those of the cluster and of `sign`.
pub(super) fn obtain(
    wanted: &WantedCertificate<'_>,
    asking: &Inquiry<'_>,
    sign: impl FnOnce() -> Result<Csr, Error>,
) -> Result<Issued, Error> {
    let api = asking.api;
    let request = match standing(wanted, asking)? {
        RequestStanding::Issued(issued) => return Ok(*issued),
        RequestStanding::Open(request) => {
            let made = request.created().unwrap_or("some time ago").to_owned();
            report::note(&format!("found the request {} of {made}", request.name()));
            request
        }
        RequestStanding::Absent(name) => Box::new(made(&name, wanted, asking, sign()?)?),
    };
    if matches!(request.state(), RequestState::Pending) {
        explain(&request, wanted, asking)?;
    }
    let name = request.name().to_owned();
    let progress = Progress::start(&format!(
        "waiting for the request {name} to be approved, at most {}; after Ctrl-C the same command goes on",
        words(&asking.wait)
    ));
    let end = signing_request::wait(api, &request, asking.wait);
    drop(progress);
    match end? {
        RequestEnd::Removed => Err(IssuanceError::Removed { name }.into()),
        RequestEnd::Reached(request) => match judged(*request, wanted)? {
            RequestStanding::Issued(issued) => Ok(*issued),
            RequestStanding::Open(_) | RequestStanding::Absent(_) => {
                let waited = asking.wait;
                Err(IssuanceError::Undecided { name, waited }.into())
            }
        },
    }
}

fn made(
    name: &str,
    wanted: &WantedCertificate<'_>,
    asking: &Inquiry<'_>,
    csr: Csr,
) -> Result<SigningRequest, Error> {
    let seconds = wanted.duration.map(|it| it.as_secs());
    let new = NewSigningRequest {
        name,
        pem: csr.pem(),
        seconds: seconds.and_then(|it| u32::try_from(it).ok()),
    };
    match signing_request::create(asking.api, &new) {
        Ok(request) => Ok(request),
        // By the same command at the same time.
        Err(ApiError::Refused(refused)) if refused.is("AlreadyExists") => {
            let found = signing_request::read(asking.api, name)?;
            found.ok_or_else(|| ApiError::Refused(refused).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// What is to be done for the approval, and what the approver compares.
fn explain(
    request: &SigningRequest,
    wanted: &WantedCertificate<'_>,
    asking: &Inquiry<'_>,
) -> Result<(), Error> {
    let applicant = wanted.applicant;
    let name = request.name();
    let file = asking.kubeconfig.map(Path::to_string_lossy);
    let file = file.map(|file| format!(" --kubeconfig {}", shell_word(&file)));
    let command = format!(
        "{} approve {} --context {}{}",
        start::called(),
        shell_word(name),
        shell_word(asking.context),
        file.unwrap_or_default()
    );
    let groups = match applicant.groups() {
        [] => "none".to_owned(),
        groups => groups.join(", "),
    };
    let mut steps = vec![
        command,
        String::new(),
        format!("user       {}", applicant.user()),
        format!("groups     {groups}"),
        format!("requester  {}", request.requester()),
        format!("key        {}, SHA-256 {}", wanted.public_key, fingerprint(wanted.public_key)?),
    ];
    let ids = request.credential_ids().iter();
    steps.extend(ids.map(|id| format!("came with  {id}")));
    report::steps(
        &format!(
            "the request {name} has to be approved by a person who may do that in the cluster, with this \
             command, after comparing:"
        ),
        &steps,
    );
    Ok(())
}

/// What a request has come to.
fn judged(
    request: SigningRequest,
    wanted: &WantedCertificate<'_>,
) -> Result<RequestStanding, Error> {
    let name = request.name().to_owned();
    if !is_for(&request, wanted.public_key)? {
        return Err(IssuanceError::OtherRequest { name }.into());
    }
    match request.state() {
        RequestState::Approved | RequestState::Pending => {
            Ok(RequestStanding::Open(Box::new(request)))
        }
        RequestState::Denied { reason, message } => {
            Err(IssuanceError::Denied { name, reason, message }.into())
        }
        RequestState::Failed { reason, message } => {
            Err(IssuanceError::Failed { name, reason, message }.into())
        }
        RequestState::Issued(pem) => {
            let issued = issued(name, pem.as_bytes(), wanted)?;
            Ok(RequestStanding::Issued(Box::new(issued)))
        }
    }
}

fn is_for(request: &SigningRequest, key: &PublicKey) -> Result<bool, Error> {
    let fingerprint = fingerprint(key)?;
    let asked = CertificationRequest::from_pem(&request.pem);
    Ok(asked.is_ok_and(|it| it.fingerprint == fingerprint))
}

/// The certificate, if it is the one that was asked for.
fn issued(name: String, pem: &[u8], wanted: &WantedCertificate<'_>) -> Result<Issued, Error> {
    let read = Certificate::chain_from_pem_or_der(pem, "it");
    let (certificate, chain) = match read {
        Ok(read) => read,
        Err(error) => {
            let reason = error.to_string();
            return Err(IssuanceError::Unreadable { name, reason }.into());
        }
    };
    if certificate.public_key() != wanted.public_key {
        return Err(IssuanceError::OtherKey { name }.into());
    }
    let expected = ExpectedCertificate {
        user: Some(wanted.applicant.user()),
        groups: Some(wanted.applicant.groups()),
        duration: wanted.duration.map(|it| it.as_secs()),
    };
    if let Some(remark) = check_issued(&certificate, &expected, unix_time())? {
        report::warning(&format!("the certificate of {}: {remark}", certificate.subject));
    }
    Ok(Issued { certificate, chain, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Curve;

    #[test]
    fn a_requests_name_follows_from_user_and_key_and_is_fit_for_a_url() {
        let key = PublicKey::Ecdsa { curve: Curve::P256, point: [vec![4], vec![7; 64]].concat() };
        let print = fingerprint(&key).unwrap();
        let named = |user: &str| request_name(user, &key, None).unwrap();
        assert_eq!(named("jane"), format!("jane-{}", &print[..10]));
        for (user, begin) in [
            ("Jane.Doe@example.com", "jane-doe-example-com-"),
            ("oidc:jäne", "oidc-j-ne-"),
            ("--", "user-"),
            ("", "user-"),
        ] {
            assert!(named(user).starts_with(begin), "{}", named(user));
        }
        assert!(named(&"x".repeat(300)).len() < 63);
    }
}
