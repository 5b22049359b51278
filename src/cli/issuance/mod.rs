//! The life of a certificate that a cluster issues: the request, the wait for its approval, what came of it;
//! and where it is kept: beside its key on the token, or in a file.
//!
//! The request's name follows from the user and the key, so that the same command finds it again after an
//! interruption, and no second one is made.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::session::{CommandOutput, Step, write_public_file};
use crate::enrollment::{
    Applicant, KeyEvidence, RESERVED, certificates_pem, check_issued, fingerprint, for_any_key,
    in_groups, intermediates, remark,
};
use crate::start;
use cluster_api::kind;
use cluster_api::signing_request::{Progress, RequestState, SHORTEST, SigningRequest};
use cluster_api::{ClusterApi, ClusterUser};
use config::duration;
use config::pin::PinProvider;
use crypto::certificate::{
    Certificate, CertificateChain, CertificationRequest, PublicKey, minute, rfc_3339,
};
use files::{data_file, read_regular};
use messages::error::{Error, Exit, Kind};
use messages::help::Help;
use messages::printable::{excerpt, hex, in_groups_of_eight, printable, shell_word};
use messages::report;
use pin_entry::ask;
use system::clock::unix_time;
use system::signals::Deferral;
use token::{KeyReference, Token};

/// A certificate that was issued doesn't last as long as it has to.
const TOO_SHORT: Kind = Kind::new("too short");

/// Of a file with a certificate or a request, in bytes.
pub(super) const LONGEST: u64 = 1 << 20;
/// How far the clock of a signer may be ahead, in seconds, for its certificates to be waited for.
const LONGEST_SKEW: i64 = 60;
/// Between two looks at this machine's clock.
const PAUSE: Duration = Duration::from_millis(200);
/// Of one user and key that are looked for.
const MOST_REQUESTS: u32 = 100;
/// Of what a request's name says of the user, in characters.
const LONGEST_USER: usize = 40;
/// Of what it says of the key, in hexadecimal digits.
const DIGITS: usize = 10;

/// What `credential --as` hands out and `check --as` looks at.
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

/// What is to be done with a [right](right_to_request).
pub(super) const APPLY: &str =
    "have an administrator of the cluster apply this (`kubectl apply -f -`)";

/// The right of this user to ask for certificates, in YAML.
pub(super) fn right_to_request(user: &str) -> [String; 12] {
    let name = json!(format!("certificate-requesters:{user}"));
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
    [
        "apiVersion: v1",
        "kind: List",
        "items:",
        "- apiVersion: rbac.authorization.k8s.io/v1",
        "  kind: ClusterRole",
        "  metadata: {name: certificate-requesters}",
        "  rules: [{apiGroups: [certificates.k8s.io], resources: [certificatesigningrequests], verbs: [create, get, delete]}]",
        "- apiVersion: rbac.authorization.k8s.io/v1",
        "  kind: ClusterRoleBinding",
        &format!("  metadata: {{name: {name}}}"),
        "  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: certificate-requesters}",
        &format!("  subjects: [{subject}]"),
    ]
    .map(str::to_owned)
}

/// How long a certificate can be asked for.
fn life(text: &str) -> Result<Duration, &'static str> {
    let can_be_asked_for =
        |life: &Duration| u32::try_from(life.as_secs()).is_ok_and(|seconds| seconds >= SHORTEST);
    duration(text)
        .ok()
        .filter(can_be_asked_for)
        .ok_or("it is no duration from 10m on, such as 90d or 12h")
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

/// What the cluster has of what is asked for.
pub(super) enum Standing {
    /// No request that counts; another one can have this name.
    Free(String),
    /// A request that is not answered yet.
    Asked(Box<SigningRequest>),
    /// A request, and the certificate that was issued for it.
    Issued(Box<SigningRequest>, Box<IssuedCertificate>),
}

impl Issuance<'_> {
    /// Makes the request unless it is there, waits for its end, and gives the certificate, which is the one that was
    /// asked for. `sign` has the key sign the request.
    pub(super) fn obtain(
        &self,
        options: &IssuanceOptions,
        output: &mut CommandOutput,
        sign: impl FnOnce() -> Result<String, Error>,
    ) -> Result<IssuedCertificate, Error> {
        let standing = self.find(options.again).map_err(|error| self.with_right(error))?;
        let request = match standing {
            Standing::Asked(request) | Standing::Issued(request, _) => {
                let time = request.metadata.creation_timestamp.as_deref();
                let made = time.map_or_else(String::new, |time| format!(", made {time}"));
                output.step(&Step {
                    title: "request",
                    text: format!("{}{made}, is in the cluster already", request.metadata.name),
                })?;
                *request
            }
            Standing::Free(name) => {
                let seconds = self.duration.and_then(|life| u32::try_from(life.as_secs()).ok());
                let request = SigningRequest::create(self.api, &name, &sign()?, seconds)
                    .map_err(|error| self.with_right(error))?;
                let (user, groups) = (self.applicant.user(), in_groups(self.applicant.groups()));
                let text = format!("{name}, for user {user:?}, {groups}");
                output.step(&Step { title: "request", text })?;
                request
            }
        };
        let limit = shown_duration(i64::try_from(options.wait.as_secs()).ok());
        if request.state()? == RequestState::Pending {
            self.explain(&request)?;
        }
        let mut clock = WaitingClock::new(&limit);
        let request = request.wait(self.api, options.wait, &mut |progress| match progress {
            Progress::Pending { left } => clock.show(left),
            Progress::Approved => clock.end(),
        })?;
        drop(clock);
        if request.state()? != RequestState::Pending {
            output
                .step(&Step { title: "approval", text: format!("of {}", request.metadata.name) })?;
        }
        self.issued(&request)?.ok_or_else(|| {
            request.late(
                &limit,
                "when it is approved, run the same command again: it goes on with this request; --wait waits longer",
            )
        })
    }

    /// The last request that is in the cluster and what it was answered with, an error if it ended in vain; or the name for
    /// another one, if that is wanted (`again`) or what the last one was answered with doesn't last. Where that is a
    /// certificate that is to be renewed, another one for the same time would be answered with the same.
    pub(super) fn find(&self, again: bool) -> Result<Standing, Error> {
        let first = request_name(self.applicant.user(), self.public_key, self.renewed)?;
        let mut name = first.clone();
        let mut last = None;
        let mut numbers = 2..=MOST_REQUESTS;
        while let Some(request) = SigningRequest::read(self.api, &name)? {
            last = Some(request);
            let Some(number) = numbers.next() else {
                let text = format!(
                    "the cluster has {MOST_REQUESTS} requests {first}, {first}-2 and so on"
                );
                return Err(Error::new(Exit::Cluster, text).help(
                    "have them removed; a cluster that has every request that it is asked for is none to be trusted",
                ));
            };
            name = format!("{first}-{number}");
        }
        let Some(last) = last.filter(|_| !again) else { return Ok(Standing::Free(name)) };
        let seconds = self.duration.and_then(|life| i64::try_from(life.as_secs()).ok());
        let is_another = self.renewed.is_none() || last.spec.expiration_seconds != seconds;
        match self.issued(&last) {
            Ok(Some(issued)) => Ok(Standing::Issued(Box::new(last), Box::new(issued))),
            Ok(None) => Ok(Standing::Asked(Box::new(last))),
            Err(error) if error.is(&TOO_SHORT) && is_another => Ok(Standing::Free(name)),
            Err(error) => Err(error),
        }
    }

    /// Where the cluster doesn't let the user ask for certificates, with what lets them.
    fn with_right(&self, error: Error) -> Error {
        if !error.is(&kind::FORBIDDEN) {
            return error;
        }
        let help = Help::from(format!("{APPLY}:"));
        error.help(help.with_candidates(&right_to_request(self.applicant.user())))
    }

    /// What is to be done for the approval, and what the approver compares: a block to be sent to them.
    fn explain(&self, request: &SigningRequest) -> Result<(), Error> {
        let Self { applicant, public_key, .. } = self;
        let groups = match applicant.groups() {
            [] => "none".to_owned(),
            groups => groups.join(", "),
        };
        let digits = fingerprint(public_key)?;
        let mut lines = vec![
            String::new(),
            "  An approver of the cluster types this, in a context of their own, and compares:"
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
        lines.push("  It can take a while: after Ctrl-C the same command goes on.".to_owned());
        report::lines(&lines.join("\n"));
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
        let is_for_key = CertificationRequest::from_pem(&request.pem)
            .is_ok_and(|csr| csr.public_key == *self.public_key);
        if !is_for_key {
            return Err(refused("in the cluster is for another key"));
        }
        let RequestState::Issued(pem) = request.state()? else { return Ok(None) };
        let CertificateChain { leaf: certificate, issuers: chain } =
            CertificateChain::from_pem_or_der(pem.as_bytes(), "it")
                .map_err(|error| refused(&format!("was answered with no certificate: {error}")))?;
        if certificate.public_key() != self.public_key {
            return Err(refused("was answered with a certificate for another key"));
        }
        wait_until_valid(&certificate);
        let now = unix_time();
        let until = self.renewed.map_or(now, |renewed| renewed.validity.not_after);
        if certificate.validity.not_after <= until {
            let [ends, until] = [certificate.validity.not_after, until].map(minute);
            let text = format!(
                "the certificate of the request {name} expires {ends}, and has to be valid after {until}"
            );
            return Err(Error::new(Exit::Cluster, text).kind(TOO_SHORT).help(
                "ask for a longer time with --duration, or have the administrators raise the signer's limit \
                 (--cluster-signing-duration) and make another request with --again",
            ));
        }
        let applicant = self.applicant;
        check_issued(&certificate, Some(applicant.user()), Some(applicant.groups()), now)?;
        if let Some(life) = self.duration
            && let Some(remark) = remark(&certificate, life.as_secs(), now)
        {
            report::warning(&format!("the certificate of {}: {remark}", certificate.subject));
        }
        let origin = format!("the certificate of the request {name}");
        Ok(Some(IssuedCertificate { certificate, chain, origin }))
    }
}

/// Says that a person's approval is waited for: once, or at a terminal with the time that is left, which moves on.
struct WaitingClock {
    limit: String,
    has_terminal: bool,
    is_shown: bool,
}

impl WaitingClock {
    /// `limit` as in `5 minutes`.
    fn new(limit: &str) -> Self {
        let has_terminal = io::stderr().is_terminal();
        Self { limit: limit.to_owned(), has_terminal, is_shown: false }
    }

    fn show(&mut self, left: Duration) {
        if self.has_terminal {
            let (minutes, seconds) = (left.as_secs() / 60, left.as_secs() % 60);
            report::in_place(&format!("  waiting for the approval, {minutes}:{seconds:02} left"));
        } else if !self.is_shown {
            report::lines(&format!("  waiting for the approval, at most {}", self.limit));
        }
        self.is_shown = true;
    }

    fn end(&mut self) {
        if self.has_terminal && self.is_shown {
            report::in_place("");
        }
        self.is_shown = false;
    }
}

impl Drop for WaitingClock {
    fn drop(&mut self) {
        self.end();
    }
}

/// A certificate that a CA has issued, with those above it.
#[derive(Clone)]
pub(super) struct IssuedCertificate {
    pub(super) certificate: Certificate,
    /// In DER.
    pub(super) chain: Vec<Vec<u8>>,
    /// As in `the certificate in FILE`.
    pub(super) origin: String,
}

impl IssuedCertificate {
    pub(super) fn from_file(path: &Path) -> Result<Self, Error> {
        let bytes = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        let source = path.display().to_string();
        let CertificateChain { leaf: certificate, issuers: chain } =
            CertificateChain::from_pem_or_der(&bytes, &source)?;
        Ok(Self { certificate, chain, origin: format!("the certificate in {source}") })
    }

    pub(super) fn pem(&self) -> Result<String, Error> {
        certificates_pem(self.certificate.der(), &self.chain)
    }

    /// Writes it beside its key, after the login that the token wants for that, and those of the CAs; whether there is
    /// room for all of these.
    pub(super) fn write(
        &self,
        token: &mut Token,
        key: &KeyReference,
        pins: &mut dyn PinProvider,
    ) -> Result<bool, Error> {
        let what = format!("to write the certificate of {}", self.certificate.subject);
        token.log_in_to_write(&what, pins, &ask)?;
        // First, so that they are there where the certificate is.
        let mut holds_all = true;
        for authority in intermediates(&self.certificate, &self.chain) {
            holds_all &= token.write_authority(&authority)?;
        }
        token.write_certificate(&self.certificate, Some(key))?;
        Ok(holds_all)
    }

    /// Keeps it in this file, or in one of its own under the user's data.
    pub(super) fn keep(&self, path: Option<&Path>) -> Result<PathBuf, Error> {
        let pem = self.pem()?;
        if let Some(path) = path {
            replace_file(path, &pem)?;
            return Ok(path.to_owned());
        }
        let key = fingerprint(self.certificate.public_key())?;
        let key = key.get(..16).unwrap_or_default();
        let name = format!("certificate-{key}-{}.pem", self.certificate.serial_number);
        let path =
            data_file::path(&name).ok_or_else(|| file_error(&name, "the user has no home"))?;
        data_file::create(&name, pem.as_bytes()).map_err(|reason| file_error(&path, reason))?;
        Ok(path)
    }
}

/// Waits for a certificate that is valid in a moment: the clock of its signer may be ahead of this machine's.
pub(super) fn wait_until_valid(certificate: &Certificate) {
    let begin = certificate.validity.not_before;
    let left = || begin.saturating_sub(unix_time());
    if (1..=LONGEST_SKEW).contains(&left()) {
        report::note(&format!(
            "the certificate of {} is valid from {} on; waiting for that",
            certificate.subject,
            rfc_3339(begin)
        ));
        while (1..=LONGEST_SKEW).contains(&left()) {
            thread::sleep(PAUSE);
        }
    }
}

/// Writes the file in one step, for everybody to read, or for whom the one that is there was.
pub(super) fn replace_file(path: &Path, text: &str) -> Result<(), Error> {
    let _deferral = Deferral::for_files();
    write_public_file(path, text)
}

pub(super) fn file_error(path: impl AsRef<Path>, reason: impl ToString) -> Error {
    let text = format!("{}: {}", path.as_ref().display(), reason.to_string());
    Error::new(Exit::Object, text).help("name a file that can be used")
}

/// What this file says of where the key was made.
pub(super) fn evidence_from_file(path: &Path, key: &PublicKey) -> Result<KeyEvidence, Error> {
    let pem = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
    KeyEvidence::from_pem(&pem, &path.display().to_string(), key)
}

/// This user of the cluster, unless no certificate is requested for it.
pub(super) fn applicant(user: &ClusterUser) -> Result<Applicant, Error> {
    let (name, groups) = (&user.name, for_any_key(user.assigned_groups()));
    if let Some(group) = groups.iter().find(|group| group.starts_with(RESERVED)) {
        let text =
            format!("user \"{name}\" is in group {group}, for which no certificate is requested");
        return Err(Error::new(Exit::Cluster, text).help(
            "use --as token for a service account with these rights, or the tunnel (`run`, `credential`)",
        ));
    }
    Applicant::new(name.clone(), groups).map_err(|error| {
        error.help("use the tunnel (`run`, `credential`), or --as token for a service account")
    })
}

/// In the largest unit of which there are several and no rest; from two days on in days, about.
pub(super) fn shown_duration(seconds: Option<i64>) -> String {
    let Some(seconds) = seconds else {
        return "as long as the signer likes (often a year)".to_owned();
    };
    const DAY: i64 = 86_400;
    let units = [(DAY, "days"), (3_600, "hours"), (60, "minutes")];
    match units.iter().find(|(size, _)| seconds >= 2 * size && seconds % size == 0) {
        Some((size, unit)) if *size == DAY || seconds < 2 * DAY => {
            format!("{} {unit}", seconds / size)
        }
        _ if seconds >= 2 * DAY => format!("about {} days", seconds / DAY),
        _ => format!("{seconds} seconds"),
    }
}

/// The first name of a request: `jane-0a1b2c3d4e`, of user and key, and `jane-0a1b2c3d4e-5f60718293` where a certificate is
/// renewed.
fn request_name(
    user: &str,
    key: &PublicKey,
    renewed: Option<&Certificate>,
) -> Result<String, Error> {
    let letters: String = user
        .chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' },
        )
        .take(LONGEST_USER)
        .collect();
    let user = match letters.trim_matches('-') {
        "" => "user",
        letters => letters,
    };
    let short = |digits: &str| digits.chars().take(DIGITS).collect::<String>();
    let mut name = format!("{user}-{}", short(&fingerprint(key)?));
    if let Some(renewed) = renewed {
        name += "-";
        name += &short(&hex(&Sha256::digest(renewed.der())));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::certificate::Curve;

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

    #[test]
    fn a_duration_has_the_largest_unit_that_it_is_made_of() {
        for (seconds, expected) in [
            (Some(600), "10 minutes"),
            (Some(3_600), "60 minutes"),
            (Some(31_536_000), "365 days"),
            (Some(601), "601 seconds"),
            (Some(90_000), "25 hours"),
            (Some(180_000), "about 2 days"),
            (Some(2_147_483_647), "about 24855 days"),
            (Some(-600), "-600 seconds"),
        ] {
            assert_eq!(shown_duration(seconds), expected);
        }
        assert!(shown_duration(None).contains("signer"));
    }
}
