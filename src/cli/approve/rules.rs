//! The rules by which requests are judged, beside the comparison with who made them: roots, or a policy's file.

use std::path::{Path, PathBuf};

use super::verifier::VerifierProgram;
use crate::cli::issuance::{LONGEST, file_error};
use attestation::{ExternalVerifier, Policy, Refusal, Roots, Trust, Verdict};
use cluster_api::signing_request::SigningRequest;
use crypto::certificate::CertificationRequest;
use crypto::verify::is_signed_by_its_key;
use files::read_regular;
use messages::error::{Error, Exit};
use system::clock::unix_time;

/// The rules by which requests are judged, beside the comparison with who made them.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    /// Attestations of YubiKeys count if they lead up to one of these roots.
    Roots(&'a Roots),
    /// The policy decides, and names the roots, too.
    Policy(&'a PolicyWithVerifier),
}

impl Rules<'_> {
    /// The verdict on the attestation in this request. A policy's verifier may take its time, and anybody can make
    /// requests. So it is asked only about a request that the policy could allow.
    pub(super) fn verdict(
        &self,
        request: &SigningRequest,
        csr: &CertificationRequest,
    ) -> Result<Verdict, Refusal> {
        let (roots, asked) = match self {
            Self::Roots(roots) => (*roots, None),
            Self::Policy(policy) => {
                let program = policy.verifier.as_ref();
                let asked =
                    program.map(|program| GuardedVerifier { program, policy, request, csr });
                (&policy.policy.roots, asked)
            }
        };
        let verifier = asked.as_ref().map(|verifier| verifier as &dyn ExternalVerifier);
        attestation::verify(&csr.der, Trust { roots, verifier }, unix_time())
    }
}

/// A policy's verifier, which is asked about a request only if its answer may matter.
struct GuardedVerifier<'a> {
    program: &'a VerifierProgram,
    policy: &'a PolicyWithVerifier,
    request: &'a SigningRequest,
    csr: &'a CertificationRequest,
}

impl ExternalVerifier for GuardedVerifier<'_> {
    fn name(&self) -> &str {
        self.program.name()
    }

    fn sha256(&self) -> &str {
        self.program.sha256()
    }

    fn answer(&self, question: &str) -> Result<Vec<u8>, String> {
        match self.policy.why_not_to_verify(self.request, self.csr) {
            Some(reason) => Err(format!("it isn't asked, since {reason}")),
            None => self.program.answer(question),
        }
    }
}

/// Yubico's roots and those of these files.
pub(super) fn roots_and(files: &[PathBuf]) -> Result<Roots, Error> {
    files.iter().try_fold(Roots::yubico()?, |roots, path| {
        let pem = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        Ok(roots.and(Roots::from_pem(&pem, &path.display().to_string())?))
    })
}

/// A policy's file, and its verifier.
pub(super) struct PolicyWithVerifier {
    pub(super) path: String,
    pub(super) policy: Policy,
    verifier: Option<VerifierProgram>,
}

impl PolicyWithVerifier {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let content = read_regular(path, LONGEST).map_err(|error| {
            let text = format!("{}: {error}", path.display());
            Error::new(Exit::Configuration, text)
                .help("name the policy's file; docs/policy.md has one to begin with")
        })?;
        let name = path.display().to_string();
        let policy = Policy::from_yaml(&content, &name)?;
        let verifier = policy.verifier.as_ref();
        let verifier = verifier.map(|command| VerifierProgram::of(command, path)).transpose()?;
        Ok(Self { path: name, policy, verifier })
    }

    /// Why the verifier's answer would change nothing for this request; `None` if it may.
    fn why_not_to_verify(
        &self,
        request: &SigningRequest,
        csr: &CertificationRequest,
    ) -> Option<String> {
        let requester = &request.spec.username;
        let user = csr.user.as_deref().unwrap_or_default();
        if !self.policy.has_device_for(user) {
            return Some(format!("the policy names no such device for user {user:?}"));
        }
        if requester != user && !self.policy.has_requester(user, requester) {
            return Some(format!("the request for {user:?} is made by {requester:?}"));
        }
        (!is_signed_by_its_key(csr)).then(|| "the request isn't signed with its key".to_owned())
    }

    /// Says in one line that this is a policy, and which.
    pub(super) fn summary(&self) -> String {
        let users = match self.policy.user_count() {
            1 => "1 user".to_owned(),
            count => format!("{count} users"),
        };
        format!("{} is a policy for {users}, SHA-256 {}", self.path, self.policy.sha256)
    }

    /// The policy's file and its verifier, in a line each with a title.
    pub(super) fn titled(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("policy", format!("{}, SHA-256 {}", self.path, self.policy.sha256))];
        if let Some(verifier) = &self.verifier {
            lines.push(("verifier", format!("{}, SHA-256 {}", verifier.name(), verifier.sha256())));
        }
        lines
    }
}
