//! What speaks for and against a request: the comparison with its requester, its evidence of hardware, and the policy.

use std::path::{Path, PathBuf};

use crate::cli::issuance::{LONGEST, file_error};
use attestation::policy::{Asked, Objection};
use attestation::yubikey::HARDWARE_GROUPS;
use attestation::{Policy, Refusal, Roots, Verdict, YubiKeyClaims};
use cluster_api::objections;
use cluster_api::signing_request::{ApprovalReason, ApprovalRecord, SigningRequest};
use crypto::certificate::CertificationRequest;
use files::read_regular;
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{printable, quoted};
use system::clock::unix_time;

/// By what requests are judged, beside who made them.
pub(super) enum Rules {
    /// Whose word on a key counts.
    Roots(Roots),
    /// What the policy in this file says, of roots, too.
    Policy { file: String, policy: Box<Policy> },
}

impl Rules {
    /// Yubico's roots and those of these files.
    pub(super) fn of_roots(files: &[PathBuf]) -> Result<Self, Error> {
        let roots = files.iter().try_fold(Roots::yubico()?, |roots, path| {
            let pem = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
            Ok::<_, Error>(roots.and(Roots::from_pem(&pem, &path.display().to_string())?))
        })?;
        Ok(Self::Roots(roots))
    }

    pub(super) fn of_policy(path: &Path) -> Result<Self, Error> {
        let content = read_regular(path, LONGEST).map_err(|error| file_error(path, error))?;
        let file = path.display().to_string();
        let policy = Box::new(Policy::from_yaml(&content, &file)?);
        Ok(Self::Policy { file, policy })
    }

    fn roots(&self) -> &Roots {
        match self {
            Self::Roots(roots) => roots,
            Self::Policy { policy, .. } => &policy.roots,
        }
    }

    /// The policy as a person finds it: `policy.yaml, SHA-256 …`; `None` without one.
    pub(super) fn named_policy(&self) -> Option<String> {
        match self {
            Self::Roots(_) => None,
            Self::Policy { file, policy } => Some(format!("{file}, SHA-256 {}", policy.sha256)),
        }
    }
}

/// A request as it was read, and what speaks for and against it.
pub(super) struct Assessment {
    pub(super) request: SigningRequest,
    pub(super) csr: CertificationRequest,
    verdict: Result<Verdict, Refusal>,
    /// In what it isn't its requester's. Each follows `the request `.
    pub(super) mismatches: Vec<String>,
    /// What the policy doesn't allow, with the file's name.
    pub(super) disallowed: Vec<String>,
}

impl Assessment {
    /// An error for a request that could be read in two ways, or not at all.
    pub(super) fn of(request: SigningRequest, rules: &Rules) -> Result<Self, Error> {
        let csr = CertificationRequest::from_pem(&request.pem).map_err(|reason| {
            let name = &request.metadata.name;
            let text = format!("the request \"{name}\" can't be approved: {reason}");
            let help = Help::from(format!(
                "have it removed (`kubectl delete certificatesigningrequest {name}"
            ));
            let help = help.and(HelpPart::Key).and("`) and asked for anew");
            Error::new(Exit::Cluster, text).help(help)
        })?;
        let verdict = attestation::verify(&csr.der, rules.roots(), unix_time());
        let mismatches = objections(&request, &csr, &opened_groups(&verdict));
        let disallowed = disallowed(&request, &csr, &verdict, rules);
        Ok(Self { request, csr, verdict, mismatches, disallowed })
    }

    /// What is wrong with the evidence, or the groups for keys in hardware that it doesn't open.
    fn evidence_objection(&self) -> Option<String> {
        if let Err(refusal) = &self.verdict {
            return Some(format!("its evidence of hardware doesn't count: {refusal}"));
        }
        let opened = opened_groups(&self.verdict);
        let is_unproven =
            |group: &&String| group.starts_with(HARDWARE_GROUPS) && !opened.contains(group);
        let unproven: Vec<_> = self.csr.groups.iter().filter(is_unproven).cloned().collect();
        if unproven.is_empty() {
            return None;
        }
        Some(format!("its evidence doesn't open the groups {}", quoted(&unproven)))
    }

    /// What the evidence says of where the key is.
    pub(super) fn hardware(&self) -> String {
        match &self.verdict {
            Ok(Verdict::NoEvidence) => "– nothing shows that this key is in hardware".to_owned(),
            Err(refusal) => format!("✘ {refusal}"),
            Ok(Verdict::Proven(claims)) => match claims.firmware.advisory(&self.csr.public_key) {
                Some(advisory) => format!("✔ {claims}; but {advisory}"),
                None => format!("✔ {claims}"),
            },
        }
    }

    /// The same for a column of a table, below which reasons stand.
    pub(super) fn hardware_in_short(&self) -> String {
        let Some(claims) = claims(&self.verdict) else { return "–".to_owned() };
        match claims.firmware.advisory(&self.csr.public_key) {
            Some(advisory) => format!("{claims}; but {advisory}"),
            None => claims.to_string(),
        }
    }

    /// Fails for evidence that doesn't count, for a group that only evidence opens without it, and for what the policy
    /// doesn't allow. No option helps against that: rights that are bound to these groups rest on it.
    pub(super) fn check_hardware(&self, rules: &Rules) -> Result<(), Error> {
        if let Some(objection) = self.evidence_objection() {
            return Err(Error::new(Exit::Object, objection).help(match (&self.verdict, rules) {
                (Err(_), Rules::Roots(_)) => {
                    "nothing was approved; --root FILE names the root of a company's own, and without evidence \
                     (`enroll --no-attestation --again`) the request can be approved as any other"
                }
                (Err(_), Rules::Policy { .. }) => {
                    "nothing was approved; the root of a company's own stands in the policy, under roots"
                }
                (Ok(_), _) => {
                    "nothing was approved; such groups are for keys that a YubiKey has made: have the requester \
                     enroll one with --hardware-groups"
                }
            }));
        }
        if self.disallowed.is_empty() {
            return Ok(());
        }
        let text = format!("the policy doesn't allow it: {}", self.disallowed.join("; "));
        Err(Error::new(Exit::Object, text).help(
            "nothing was approved; have the requester ask for what the policy allows, or change the policy",
        ))
    }

    /// Everything that speaks against it, a line each.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self.evidence_objection().into_iter().collect();
        reasons.extend_from_slice(&self.disallowed);
        reasons.extend(self.mismatches.iter().map(|mismatch| format!("the request {mismatch}")));
        reasons
    }

    /// What is recorded with its approval: on which evidence, by which policy, and despite what.
    pub(super) fn record(&self, rules: &Rules) -> ApprovalRecord {
        let mut message = Vec::new();
        let reason = match claims(&self.verdict) {
            Some(claims) => {
                message.push(claims.to_string());
                ApprovalReason::Attested
            }
            None => ApprovalReason::Compared,
        };
        if let Rules::Policy { policy, .. } = rules {
            message.push(format!("allowed by the policy with SHA-256 {}", policy.sha256));
        }
        let compared = "compared with the requester by pkcs11-external-signer approve";
        message.push(match self.mismatches.as_slice() {
            [] => compared.to_owned(),
            mismatches => {
                let mismatches = listed(mismatches, "and");
                format!("{compared}, and approved although the request {}", printable(&mismatches))
            }
        });
        ApprovalRecord { reason, message: message.join("; ") }
    }
}

/// What is proven of the key.
fn claims(verdict: &Result<Verdict, Refusal>) -> Option<&YubiKeyClaims> {
    match verdict {
        Ok(Verdict::Proven(claims)) => Some(claims),
        Ok(Verdict::NoEvidence) | Err(_) => None,
    }
}

/// The groups that the evidence opens.
fn opened_groups(verdict: &Result<Verdict, Refusal>) -> Vec<String> {
    claims(verdict).map_or_else(Vec::new, |claims| claims.groups().to_vec())
}

/// What the policy doesn't allow of a request. Evidence that doesn't count is refused without one.
fn disallowed(
    request: &SigningRequest,
    csr: &CertificationRequest,
    verdict: &Result<Verdict, Refusal>,
    rules: &Rules,
) -> Vec<String> {
    let (Rules::Policy { file, policy }, Ok(_)) = (rules, verdict) else { return Vec::new() };
    let objections = policy.objections(&Asked {
        user: csr.user.as_deref(),
        groups: &csr.groups,
        seconds: request.spec.expiration_seconds,
        claims: claims(verdict),
    });
    let line = |objection: &Objection| format!("{file}, {objection}");
    objections.iter().map(line).collect()
}
