//! By what requests are judged, beside who made them: roots, or a policy's file.

use std::path::{Path, PathBuf};

use super::verifier::VerifierProgram;
use crate::cli::issuance::{LONGEST, file_error};
use attestation::{Policy, Roots, Trust, Verifier};
use files::read_regular;
use messages::error::Error;

/// By what requests are judged, beside who made them.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    /// Whose attestations of YubiKeys count.
    Roots(&'a Roots),
    /// What the policy says, of roots, too.
    Policy(&'a PolicyFile),
}

impl Rules<'_> {
    pub(super) fn trust(&self) -> Trust<'_> {
        match self {
            Self::Roots(roots) => Trust { roots, verifier: None },
            Self::Policy(policy) => policy.trust(),
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
pub(super) struct PolicyFile {
    pub(super) path: String,
    pub(super) policy: Policy,
    verifier: Option<VerifierProgram>,
}

impl PolicyFile {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let content = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        let name = path.display().to_string();
        let policy = Policy::from_yaml(&content, &name)?;
        let verifier = policy.verifier.as_ref();
        let verifier = verifier.map(|command| VerifierProgram::of(command, path)).transpose()?;
        Ok(Self { path: name, policy, verifier })
    }

    fn trust(&self) -> Trust<'_> {
        let verifier = self.verifier.as_ref().map(|program| program as &dyn Verifier);
        Trust { roots: &self.policy.roots, verifier }
    }

    /// That it is a policy, and which.
    pub(super) fn summary(&self) -> String {
        let users = match self.policy.user_count() {
            1 => "1 user".to_owned(),
            count => format!("{count} users"),
        };
        format!("{} is a policy for {users}, SHA-256 {}", self.path, self.policy.sha256)
    }

    /// What is recorded with an approval that it allows.
    pub(super) fn record(&self) -> String {
        format!("allowed by the policy with SHA-256 {}", self.policy.sha256)
    }

    /// The policy as a person finds it, and its verifier, a line each with a title.
    pub(super) fn titled(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("policy", format!("{}, SHA-256 {}", self.path, self.policy.sha256))];
        if let Some(verifier) = &self.verifier {
            lines.push(("verifier", format!("{}, SHA-256 {}", verifier.name(), verifier.sha256())));
        }
        lines
    }
}
