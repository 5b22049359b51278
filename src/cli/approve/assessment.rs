//! What speaks for and against a request: the comparison with its requester, its attestation, and the policy.

use super::record::ApprovalText;
use super::rules::Rules;
use attestation::policy::{Asked, Objection};
use attestation::yubikey::HARDWARE_GROUPS;
use attestation::{Claims, Refusal, Verdict};
use cluster_api::objections;
use cluster_api::signing_request::{ApprovalReason, ApprovalRecord, Granted, SigningRequest};
use crypto::certificate::CertificationRequest;
use messages::error::{Error, Exit, listed};
use messages::help::{Help, HelpPart};
use messages::printable::{printable, quoted};

/// A request as it was read, and what speaks for and against it.
pub(super) struct Assessment {
    pub(super) request: SigningRequest,
    pub(super) csr: CertificationRequest,
    verdict: Result<Verdict, Refusal>,
    /// What the request asks for that its requester doesn't have. Each text follows the words `the request `.
    pub(super) mismatches: Vec<String>,
    /// What the policy doesn't allow, with the file's name.
    pub(super) disallowed: Vec<String>,
}

impl Assessment {
    /// Assesses a request by these rules. An error for a request that could be read in two ways, or not at all.
    pub(super) fn of(request: SigningRequest, rules: Rules<'_>) -> Result<Self, Error> {
        let csr = CertificationRequest::from_pem(&request.pem).map_err(|reason| {
            let name = &request.metadata.name;
            let text = format!("the request \"{name}\" can't be approved: {reason}");
            let help = Help::from(format!(
                "have it removed (`kubectl delete certificatesigningrequest {name}"
            ));
            let help = help.and(HelpPart::Key).and("`) and asked for anew");
            Error::new(Exit::Cluster, text).help(help)
        })?;
        let verdict = rules.verdict(&request, &csr);
        let granted = Granted {
            groups: opened_groups(&verdict),
            is_user: has_requester(rules, &request, &csr),
        };
        let mismatches = objections(&request, &csr, &granted);
        let disallowed = disallowed(&request, &csr, &verdict, rules);
        Ok(Self { request, csr, verdict, mismatches, disallowed })
    }

    /// What is wrong with the attestation, or which groups for keys in hardware it doesn't open although the request
    /// has them.
    fn attestation_objection(&self) -> Option<String> {
        if let Err(refusal) = &self.verdict {
            return Some(format!("its attestation doesn't count: {refusal}"));
        }
        let opened = opened_groups(&self.verdict);
        let is_unproven =
            |group: &&String| group.starts_with(HARDWARE_GROUPS) && !opened.contains(group);
        let unproven: Vec<_> = self.csr.groups.iter().filter(is_unproven).cloned().collect();
        if unproven.is_empty() {
            return None;
        }
        Some(format!("no attestation opens the groups {}", quoted(&unproven)))
    }

    /// What the attestation says of where the key is.
    pub(super) fn hardware(&self) -> String {
        match &self.verdict {
            Ok(Verdict::Unattested) => "– nothing shows that this key is in hardware".to_owned(),
            Err(refusal) => format!("✘ {refusal}"),
            Ok(Verdict::Proven(claims)) => match claims.advisory(&self.csr.public_key) {
                Some(advisory) => format!("✔ {claims}; but {advisory}"),
                None => format!("✔ {claims}"),
            },
        }
    }

    /// What the attestation says of where the key is, for a column of a table. The reasons for a refusal stand below.
    pub(super) fn hardware_in_short(&self) -> String {
        let Some(claims) = claims(&self.verdict) else { return "–".to_owned() };
        match claims.advisory(&self.csr.public_key) {
            Some(advisory) => format!("{claims}; but {advisory}"),
            None => claims.to_string(),
        }
    }

    /// Fails for an attestation that doesn't count, for a group that only an attestation opens if there is none, and
    /// for what the policy doesn't allow. No option helps against that: the rights that are bound to these groups rest
    /// on it.
    pub(super) fn check_hardware(&self, rules: Rules<'_>) -> Result<(), Error> {
        if let Some(objection) = self.attestation_objection() {
            return Err(Error::new(Exit::Object, objection).help(match (&self.verdict, rules) {
                (Err(Refusal::NoVerifier(_)), _) => {
                    "nothing was approved; name a program that judges it in a policy, under verifier"
                }
                (Err(_), Rules::Roots(_)) => {
                    "nothing was approved; --root FILE names the root of a company's own, and without an attestation \
                     (`enroll --no-attestation --again`) the request can be approved as any other"
                }
                (Err(Refusal::ByVerifier { .. }), Rules::Policy(_)) => {
                    "nothing was approved; the policy's verifier has said so, or failed"
                }
                (Err(_), Rules::Policy(_)) => {
                    "nothing was approved; the root of a company's own stands in the policy, under roots"
                }
                (Ok(_), _) => {
                    "nothing was approved; such groups are for keys that a device attests: have the requester enroll \
                     one with --hardware-groups"
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

    /// Everything that speaks against the request, in a line each.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self.attestation_objection().into_iter().collect();
        reasons.extend_from_slice(&self.disallowed);
        reasons.extend(self.mismatches.iter().map(|mismatch| format!("the request {mismatch}")));
        reasons
    }

    /// What is recorded with the request's approval: which attestation and which policy it rests on, and what spoke
    /// against it.
    pub(super) fn record(&self, rules: Rules<'_>) -> ApprovalRecord {
        let claims = claims(&self.verdict);
        let mismatches = listed(&self.mismatches, "and");
        let text = ApprovalText {
            policy: match rules {
                Rules::Policy(policy) => Some(&policy.policy.sha256),
                Rules::Roots(_) => None,
            },
            claims: claims.map(Claims::recorded),
            mismatches: (!self.mismatches.is_empty()).then(|| printable(&mismatches).into_owned()),
        };
        let reason = match claims {
            Some(_) => ApprovalReason::Attested,
            None => ApprovalReason::Compared,
        };
        ApprovalRecord { reason, message: text.to_string() }
    }
}

/// What the attestation proves of the key.
fn claims(verdict: &Result<Verdict, Refusal>) -> Option<&Claims> {
    match verdict {
        Ok(Verdict::Proven(claims)) => Some(claims),
        Ok(Verdict::Unattested) | Err(_) => None,
    }
}

/// The groups that the attestation opens.
fn opened_groups(verdict: &Result<Verdict, Refusal>) -> Vec<String> {
    claims(verdict).map_or_else(Vec::new, |claims| claims.groups().to_vec())
}

/// Whether the policy has this requester make requests for the user.
fn has_requester(rules: Rules<'_>, request: &SigningRequest, csr: &CertificationRequest) -> bool {
    match (rules, &csr.user) {
        (Rules::Policy(policy), Some(user)) => {
            policy.policy.has_requester(user, &request.spec.username)
        }
        (Rules::Policy(_), None) | (Rules::Roots(_), _) => false,
    }
}

/// What the policy doesn't allow of a request. An attestation that doesn't count is refused even without a policy.
fn disallowed(
    request: &SigningRequest,
    csr: &CertificationRequest,
    verdict: &Result<Verdict, Refusal>,
    rules: Rules<'_>,
) -> Vec<String> {
    let (Rules::Policy(policy), Ok(_)) = (rules, verdict) else { return Vec::new() };
    let objections = policy.policy.objections(&Asked {
        requester: &request.spec.username,
        user: csr.user.as_deref(),
        groups: &csr.groups,
        seconds: request.spec.expiration_seconds,
        claims: claims(verdict),
    });
    let line = |objection: &Objection| format!("{}, {objection}", policy.path);
    objections.iter().map(line).collect()
}
