//! The life of a certificate that a cluster issues: the request, the wait for its approval, what came of it, and whom
//! the cluster takes its bearer for.
//!
//! The request's name follows from the user and the key, so that the same command finds it again after an
//! interruption, and no second one is made.

mod issued;

use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

pub(super) use self::issued::{IssuedCertificate, LONGEST, file_error, replace_file};
use crate::certificate::{Certificate, CertificationRequest, PublicKey, minute};
use crate::cluster_api::ClusterApi;
use crate::cluster_api::signing_request::{RequestState, SHORTEST, SigningRequest};
use crate::config::duration;
use crate::enrollment::{Applicant, ExpectedCertificate, check_issued, fingerprint};
use crate::error::{Error, Exit, Kind};
use crate::printable::{hex, shell_word};
use crate::process::unix_time;
use crate::report;
use crate::start;

/// Of what a request's name says of the user, in characters.
const LONGEST_USER: usize = 40;
/// Of what it says of the key, in hexadecimal digits.
const DIGITS: usize = 10;

/// How a cluster is asked for a certificate.
#[derive(Debug, clap::Args)]
pub(super) struct IssuanceOptions {
    /// How long the certificate is to be valid, such as 90d; without it as long as the cluster's signer gives
    #[arg(long, value_name = "TIME", value_parser = life)]
    pub(super) duration: Option<Duration>,
    /// How long to wait for the approval
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    wait: Duration,
    /// Make another request, whatever became of the last one
    #[arg(long)]
    again: bool,
}

/// How long a certificate can be asked for.
fn life(text: &str) -> Result<Duration, &'static str> {
    let life = duration(text)
        .ok()
        .filter(|it| it.as_secs() >= SHORTEST.into() && u32::try_from(it.as_secs()).is_ok());
    life.ok_or("it is no duration from 10m on, such as 90d or 12h")
}

/// What is asked for, by the request `jane-0a1b2c3d4e` for a user and a key.
#[derive(Clone, Copy)]
pub(super) struct Issuance<'a> {
    pub(super) api: &'a dyn ClusterApi,
    pub(super) applicant: &'a Applicant,
    pub(super) public_key: &'a PublicKey,
    /// How long the certificate is to be valid; the signer's own choice without.
    pub(super) duration: Option<Duration>,
    /// Is named in the request's name, too, and ends before the new certificate.
    pub(super) renewed: Option<&'a Certificate>,
}

/// A request, and the certificate if it was issued.
type Found = (SigningRequest, Option<IssuedCertificate>);

impl Issuance<'_> {
    /// Makes the request unless it is there, waits for its end, and gives the certificate, which is the one that was
    /// asked for. `sign` has the key sign the request.
    pub(super) fn obtain(
        &self,
        options: &IssuanceOptions,
        context: &str,
        kubeconfig: Option<&Path>,
        sign: impl FnOnce() -> Result<String, Error>,
    ) -> Result<IssuedCertificate, Error> {
        let request = match self.find(options.again)? {
            (_, Some((request, _))) => {
                let made = request.metadata.creation_timestamp.as_deref();
                let made = made.unwrap_or("some time ago");
                report::note(&format!("found the request {} of {made}", request.metadata.name));
                request
            }
            (name, None) => {
                let seconds = self.duration.and_then(|it| u32::try_from(it.as_secs()).ok());
                SigningRequest::create(self.api, &name, &sign()?, seconds)?
            }
        };
        if request.state()? == RequestState::Pending {
            self.explain(&request, context, kubeconfig)?;
        }
        let name = &request.metadata.name;
        let limit = match options.wait.as_secs() {
            seconds @ 120.. => format!("{} minutes", seconds / 60),
            seconds => format!("{seconds} seconds"),
        };
        report::note(&format!(
            "waiting for the request {name} to be approved, at most {limit}; after Ctrl-C the same command goes on"
        ));
        let request = request.wait(self.api, options.wait)?;
        self.issued(&request)?.ok_or_else(|| {
            let text = format!("the request {name} was not approved within {limit}");
            Error::new(Exit::Cluster, text).help(
                "when it is approved, run the same command again: it goes on with this request; --wait waits longer",
            )
        })
    }

    /// The certificate, if the cluster has issued it already.
    pub(super) fn found(&self) -> Result<Option<IssuedCertificate>, Error> {
        Ok(self.find(false)?.1.and_then(|(_, issued)| issued))
    }

    /// The last request that is in the cluster and what it was answered with, an error if it ended in vain; or the name for
    /// another one, if that is wanted or what the last one was answered with doesn't last.
    fn find(&self, again: bool) -> Result<(String, Option<Found>), Error> {
        let first = request_name(self.applicant.user(), self.public_key, self.renewed)?;
        let (mut name, mut last) = (first.clone(), None);
        for number in 2.. {
            let Some(request) = SigningRequest::read(self.api, &name)? else {
                break;
            };
            last = Some(request);
            name = format!("{first}-{number}");
        }
        let Some(last) = last.filter(|_| !again) else {
            return Ok((name, None));
        };
        match self.issued(&last) {
            Err(error) if error.is(Kind::TooShort) => Ok((name, None)),
            outcome => outcome.map(|issued| (name, Some((last, issued)))),
        }
    }

    /// What is to be done for the approval, and what the approver compares.
    fn explain(
        &self,
        request: &SigningRequest,
        context: &str,
        kubeconfig: Option<&Path>,
    ) -> Result<(), Error> {
        let Self { applicant, public_key, .. } = self;
        let name = &request.metadata.name;
        let (program, context) = (start::called(), shell_word(context));
        let mut command = format!("{program} approve {} --context {context}", shell_word(name));
        if let Some(file) = kubeconfig.map(Path::to_string_lossy) {
            command += &format!(" --kubeconfig {}", shell_word(&file));
        }
        let groups = match applicant.groups() {
            [] => "none".to_owned(),
            groups => groups.join(", "),
        };
        let mut steps = vec![
            command,
            String::new(),
            format!("user       {}", applicant.user()),
            format!("groups     {groups}"),
            format!("requester  {}", request.spec.username),
            format!("key        {public_key}, SHA-256 {}", fingerprint(public_key)?),
        ];
        steps.extend(request.credential_ids().iter().map(|id| format!("came with  {id}")));
        report::steps(
            &format!(
                "the request {name} has to be approved by a person who may do that in the cluster, with this \
                 command, after comparing:"
            ),
            &steps,
        );
        Ok(())
    }

    /// The certificate that a request was answered with, if it is the one that was asked for; `None` as long as there is
    /// none.
    pub(super) fn issued(
        &self,
        request: &SigningRequest,
    ) -> Result<Option<IssuedCertificate>, Error> {
        let name = &request.metadata.name;
        let refused = |reason: &str| {
            Error::new(Exit::Cluster, format!("the request {name} {reason}")).help(
                "nothing was installed; tell the administrators of the cluster, and make another request with --again",
            )
        };
        let csr = CertificationRequest::from_pem(&request.pem);
        let fingerprint = fingerprint(self.public_key)?;
        if csr.map_or(true, |csr| csr.fingerprint != fingerprint) {
            return Err(refused("in the cluster is for another key"));
        }
        let RequestState::Issued(pem) = request.state()? else {
            return Ok(None);
        };
        let (certificate, chain) = Certificate::chain_from_pem_or_der(pem.as_bytes(), "it")
            .map_err(|error| refused(&format!("was answered with no certificate: {error}")))?;
        if certificate.public_key() != self.public_key {
            return Err(refused("was answered with a certificate for another key"));
        }
        let now = unix_time();
        let until = self.renewed.map_or(now, |it| it.validity.not_after);
        if certificate.validity.not_after <= until {
            let [ends, until] = [certificate.validity.not_after, until].map(minute);
            let text = format!(
                "the certificate of the request {name} expires {ends}, and has to be valid after {until}"
            );
            return Err(Error::new(Exit::Cluster, text).kind(Kind::TooShort).help(
                "ask for a longer time with --duration, or have the administrators raise the signer's limit \
                 (--cluster-signing-duration)",
            ));
        }
        let expected = ExpectedCertificate {
            user: Some(self.applicant.user()),
            groups: Some(self.applicant.groups()),
            duration: self.duration.map(|it| it.as_secs()),
        };
        if let Some(remark) = check_issued(&certificate, &expected, now)? {
            report::warning(&format!("the certificate of {}: {remark}", certificate.subject));
        }
        let origin = format!("the certificate of the request {name}");
        Ok(Some(IssuedCertificate { certificate, chain, origin }))
    }
}

fn request_name(
    user: &str,
    key: &PublicKey,
    renewed: Option<&Certificate>,
) -> Result<String, Error> {
    let user = user.chars().map(|it| it.to_ascii_lowercase());
    let user = user.map(|it| if it.is_ascii_alphanumeric() { it } else { '-' });
    let user: String = user.take(LONGEST_USER).collect();
    let user = user.trim_matches('-');
    let mut parts = vec![if user.is_empty() { "user" } else { user }.to_owned()];
    let short = |digits: String| digits.chars().take(DIGITS).collect::<String>();
    parts.push(short(fingerprint(key)?));
    parts.extend(renewed.map(|it| short(hex(&Sha256::digest(it.der())))));
    Ok(parts.join("-"))
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
