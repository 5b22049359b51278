//! The life of a certificate that a cluster issues: the request, the wait for its approval, what came of it;
//! and where it is kept: beside its key on the token, or in a file.
//!
//! The request's name follows from the user and the key, so that the same command finds it again after an
//! interruption, and no second one is made.

mod applicant;
mod certificate;
mod files;
mod waiting;

pub(super) use applicant::{APPLY, applicant, right_to_request};
pub(super) use certificate::IssuedCertificate;
pub(super) use files::{LONGEST, attestation_from_file, file_error, replace_file};
pub(super) use waiting::{shown_duration, wait_until_valid};

use std::iter;
use std::time::Duration;

use clap::ValueEnum;

use self::applicant::request_name;
use self::waiting::WaitingClock;
use super::session::{CommandOutput, Step};
use crate::enrollment::{Applicant, asks_for, check_issued, fingerprint, in_groups, remark};
use crate::start;
use attestation::AttestationBundle;
use cluster_api::ClusterApi;
use cluster_api::kind;
use cluster_api::signing_request::{Progress, RequestState, SHORTEST, SigningRequest};
use config::duration;
use crypto::certificate::{Certificate, CertificateChain, CertificationRequest, PublicKey, minute};
use messages::error::{Error, Exit, Kind};
use messages::help::Help;
use messages::printable::{excerpt, in_groups_of_eight, printable, shell_word};
use messages::report;
use system::clock::unix_time;

/// A certificate that was issued doesn't last as long as it has to.
const TOO_SHORT: Kind = Kind::new("too short");

/// How many requests of one user and key are looked for.
const MOST_REQUESTS: usize = 100;
/// How many names are looked at together. The cluster clears requests away one by one, so that an earlier request can
/// stand behind names that are free again.
const LOOKED_AT_TOGETHER: usize = 10;

/// The kinds of credentials that `credential --as` hands out and `check --as` looks at.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum ShortLived {
    /// A certificate for a key that is made for it, from the cluster's signer
    Certificate,
    /// A JSON Web Token that the key signs
    Jwt,
    /// A token of a service account, from the API server
    Token,
}

// How a cluster is asked for a certificate.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct IssuanceOptions {
    /// How long the certificate should be valid, such as 90d [default: the signer's choice]
    #[arg(long, value_name = "TIME", value_parser = life)]
    pub(super) duration: Option<Duration>,
    /// How long to wait for the approval
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration, hide_short_help = true)]
    wait: Duration,
    /// Make another request, unless the last one asks for the same and is pending
    #[arg(long, hide_short_help = true)]
    again: bool,
}

/// Parses the life of a certificate, which has to be at least as long as a cluster can be asked for.
fn life(text: &str) -> Result<Duration, &'static str> {
    let can_be_asked_for =
        |life: &Duration| u32::try_from(life.as_secs()).is_ok_and(|seconds| seconds >= SHORTEST);
    duration(text)
        .ok()
        .filter(can_be_asked_for)
        .ok_or("it must be a duration of at least 10m, such as 90d or 12h")
}

/// The certificate that is asked for, for a user and a key. The request's name is `jane-0a1b2c3d4e`.
#[derive(Clone, Copy)]
pub(super) struct Issuance<'a> {
    pub(super) api: &'a dyn ClusterApi,
    pub(super) applicant: &'a Applicant,
    pub(super) public_key: &'a PublicKey,
    /// How long the certificate is to be valid; `None` leaves that to the signer.
    pub(super) duration: Option<Duration>,
    /// The certificate that is renewed. The request's name contains its hash, and the new certificate has to be valid
    /// for longer.
    pub(super) renewed: Option<&'a Certificate>,
    /// What the request says of where the key was made.
    pub(super) attestation: Option<&'a AttestationBundle>,
}

/// The requests for a user and a key that the cluster has.
pub(super) struct Requested {
    /// The request that was made last.
    pub(super) last: Option<SigningRequest>,
    /// The name for the next request.
    next: String,
}

/// What has become so far of the certificate that is asked for.
pub(super) enum EarlierRequest {
    /// No request counts, and another one can have this name.
    Free(String),
    /// A request that is not answered yet.
    Asked(Box<SigningRequest>),
    /// A request, and the certificate that was issued for it.
    Issued(Box<SigningRequest>, Box<IssuedCertificate>),
}

impl Issuance<'_> {
    /// Makes the request, unless it has been made, waits for its end, and returns the certificate, which is the one
    /// that was asked for. `sign` has the key sign the request.
    pub(super) fn obtain(
        &self,
        options: &IssuanceOptions,
        output: &mut CommandOutput,
        sign: impl FnOnce() -> Result<String, Error>,
    ) -> Result<IssuedCertificate, Error> {
        let earlier = self.find(options.again).map_err(|error| self.with_right(error))?;
        let request = match earlier {
            EarlierRequest::Asked(request) | EarlierRequest::Issued(request, _) => {
                let time = request.metadata.creation_timestamp.as_deref();
                let made = time.map_or_else(String::new, |time| format!(", made {time}"));
                let text = format!("{}{made}, is in the cluster already", request.metadata.name);
                output.step(&Step { title: "request", text })?;
                *request
            }
            EarlierRequest::Free(name) => {
                let request = self.send(&name, &sign()?)?;
                let (user, groups) = (self.applicant.user(), in_groups(self.applicant.groups()));
                let text = format!("{name}, for user {user:?}, {groups}");
                output.step(&Step { title: "request", text })?;
                request
            }
        };
        self.wait(request, options.wait, output)
    }

    /// Sends the request `csr`, in PEM, to the cluster under this name.
    fn send(&self, name: &str, csr: &str) -> Result<SigningRequest, Error> {
        let seconds = self.duration.and_then(|life| u32::try_from(life.as_secs()).ok());
        SigningRequest::create(self.api, name, csr, seconds).map_err(|error| self.with_right(error))
    }

    /// Says what an approver has to do, and waits for the certificate.
    fn wait(
        &self,
        request: SigningRequest,
        limit: Duration,
        output: &mut CommandOutput,
    ) -> Result<IssuedCertificate, Error> {
        if request.state()? == RequestState::Pending {
            self.explain(&request)?;
        }
        let shown_limit = shown_duration(i64::try_from(limit.as_secs()).ok());
        let mut clock = WaitingClock::new(&shown_limit);
        let request = request.wait(self.api, limit, &mut |progress| match progress {
            Progress::Pending { left } => clock.show(left),
            Progress::Approved => clock.end(),
        })?;
        drop(clock);
        if request.state()? != RequestState::Pending {
            let text = format!("of {}", request.metadata.name);
            output.step(&Step { title: "approval", text })?;
        }
        self.issued(&request)?.ok_or_else(|| {
            request.late(
                &shown_limit,
                "when it is approved, run the same command again: it continues with this request; --wait waits longer",
            )
        })
    }

    /// Finds the last request in the cluster, and the certificate that was issued for it. An error if it was denied or
    /// has failed. Another name is returned if there is none, if another one is wanted (`again`) and the last isn't
    /// pending, or if the last certificate doesn't last long enough. In the last case, a renewal for the same time
    /// would get the same again, so that it is an error.
    pub(super) fn find(&self, again: bool) -> Result<EarlierRequest, Error> {
        let Requested { last, next } = self.requested()?;
        let Some(last) = last else { return Ok(EarlierRequest::Free(next)) };
        if again && !self.is_pending(&last) {
            return Ok(EarlierRequest::Free(next));
        }
        let is_another =
            self.renewed.is_none() || last.spec.expiration_seconds != self.expiration_seconds();
        match self.issued(&last) {
            Ok(Some(issued)) => Ok(EarlierRequest::Issued(Box::new(last), Box::new(issued))),
            Ok(None) => Ok(EarlierRequest::Asked(Box::new(last))),
            Err(error) if error.is(&TOO_SHORT) && is_another => Ok(EarlierRequest::Free(next)),
            Err(error) => Err(error),
        }
    }

    /// Finds the requests for this user and key that the cluster has. Requests behind [`LOOKED_AT_TOGETHER`] free names
    /// are not found.
    pub(super) fn requested(&self) -> Result<Requested, Error> {
        let first = request_name(self.applicant.user(), self.public_key, self.renewed)?;
        let others = (2..=MOST_REQUESTS).map(|number| format!("{first}-{number}"));
        let names: Vec<String> = iter::once(first.clone()).chain(others).collect();
        let mut last = None;
        for together in names.chunks(LOOKED_AT_TOGETHER) {
            match SigningRequest::last_of(self.api, together)? {
                Some(request) => last = Some(request),
                None => break,
            }
        }
        let mut free = names.into_iter();
        if let Some(last) = &last {
            free.find(|name| *name == last.metadata.name);
        }
        let next = free.next().ok_or_else(|| {
            let text =
                format!("the cluster has {MOST_REQUESTS} requests {first}, {first}-2 and so on");
            Error::new(Exit::Cluster, text).help(
                "have them removed; a cluster that has every request that it is asked for is none to be trusted",
            )
        })?;
        Ok(Requested { last, next })
    }

    /// Whether nobody has decided on the request yet, and another one would ask for the same.
    fn is_pending(&self, request: &SigningRequest) -> bool {
        matches!(request.state(), Ok(RequestState::Pending))
            && request.spec.expiration_seconds == self.expiration_seconds()
            && asks_for(&request.pem, self.applicant, self.attestation)
    }

    /// How long the certificate is to be valid in seconds, as a request has it.
    fn expiration_seconds(&self) -> Option<i64> {
        self.duration.and_then(|life| i64::try_from(life.as_secs()).ok())
    }

    /// Adds to an error which right the user needs, if the cluster doesn't let them ask for certificates.
    fn with_right(&self, error: Error) -> Error {
        if !error.is(&kind::FORBIDDEN) {
            return error;
        }
        let help = Help::from(format!("{APPLY}:"));
        error.help(help.with_candidates(&right_to_request(self.applicant.user())))
    }

    /// Prints a block that the person can send to an approver: the command to type, and what the approver compares.
    fn explain(&self, request: &SigningRequest) -> Result<(), Error> {
        let Self { applicant, public_key, .. } = self;
        let groups = match applicant.groups() {
            [] => "none".to_owned(),
            groups => groups.join(", "),
        };
        let digits = fingerprint(public_key)?;
        let mut lines = vec![
            String::new(),
            "  Send this to an approver, to type in a context of their own and to compare:"
                .to_owned(),
            String::new(),
            format!("    {} approve {}", start::called(), shell_word(&request.metadata.name)),
            String::new(),
            format!("    in         {}", printable(self.api.cluster())),
            format!("    user       {}", applicant.user()),
            format!("    groups     {groups}"),
            format!("    requester  {}", printable(&request.spec.username)),
        ];
        let credentials = request.credential_ids().iter().map(|id| excerpt(id));
        lines.extend(credentials.map(|id| format!("    by         {}", printable(&id))));
        lines.push(format!("    key        {public_key}, whose SHA-256 is"));
        lines.push(format!("    {}", in_groups_of_eight(&digits)));
        lines.push(String::new());
        lines.push("  You can leave with Ctrl-C; the same command continues later.".to_owned());
        report::lines(&lines.join("\n"));
        Ok(())
    }

    /// The certificate that a request was answered with, if it is the one that was asked for. `None` as long as there
    /// is none.
    pub(super) fn issued(
        &self,
        request: &SigningRequest,
    ) -> Result<Option<IssuedCertificate>, Error> {
        let name = &request.metadata.name;
        let is_for_key = CertificationRequest::from_pem(&request.pem)
            .is_ok_and(|csr| csr.public_key == *self.public_key);
        if !is_for_key {
            return Err(refused(name, "in the cluster is for another key"));
        }
        let RequestState::Issued(pem) = request.state()? else { return Ok(None) };
        let CertificateChain { leaf: certificate, issuers: chain } =
            CertificateChain::from_pem_or_der(pem.as_bytes(), "it").map_err(|error| {
                refused(name, &format!("was answered with no certificate: {error}"))
            })?;
        self.check_answer(name, &certificate)?;
        let origin = format!("the certificate of the request {name}");
        Ok(Some(IssuedCertificate { certificate, chain, origin }))
    }

    /// Fails if the request of this name was answered with a certificate that isn't the one that was asked for, or that
    /// doesn't last. If it will be valid in a moment, this waits.
    fn check_answer(&self, name: &str, certificate: &Certificate) -> Result<(), Error> {
        if certificate.public_key() != self.public_key {
            return Err(refused(name, "was answered with a certificate for another key"));
        }
        wait_until_valid(certificate);
        let now = unix_time();
        let until = self.renewed.map_or(now, |renewed| renewed.validity.not_after);
        if certificate.validity.not_after <= until {
            return Err(too_short(name, certificate, until));
        }
        let applicant = self.applicant;
        check_issued(certificate, Some(applicant.user()), Some(applicant.groups()), now)?;
        if let Some(life) = self.duration
            && let Some(remark) = remark(certificate, life.as_secs(), now)
        {
            report::warning(&format!("the certificate of {}: {remark}", certificate.subject));
        }
        Ok(())
    }
}

/// The error that the request of this name, or its certificate, isn't what was asked for.
fn refused(name: &str, reason: &str) -> Error {
    Error::new(Exit::Cluster, format!("the request {name} {reason}")).help(
        "nothing was installed; tell the administrators of the cluster, and make another request with --again",
    )
}

/// The error that the certificate ends before `until`, in seconds since 1970.
fn too_short(name: &str, certificate: &Certificate, until: i64) -> Error {
    let [ends, until] = [certificate.validity.not_after, until].map(minute);
    let text = format!(
        "the certificate of the request {name} expires {ends}, and has to be valid after {until}"
    );
    Error::new(Exit::Cluster, text).kind(TOO_SHORT).help(
        "ask for a longer time with --duration, or have the administrators raise the signer's limit \
         (--cluster-signing-duration); then make another request with --again",
    )
}
