//! What is recorded with an approval, in words for people, and how it is read again.

/// The last part of each approval's record, with what spoke against the request if anything did.
pub(super) const COMPARED: &str = "compared with the requester by pkcs11-external-signer approve";
/// How the sentence about the policy begins; the policy's SHA-256 follows.
const ALLOWED: &str = "allowed by the policy with SHA-256 ";

/// What an approval rests on. Its text has the policy first: what comes after it may quote what others have made up.
pub(super) struct ApprovalText<'a> {
    /// The SHA-256 of the policy that allows the approval.
    pub(super) policy: Option<&'a str>,
    /// What is proven of the key.
    pub(super) claims: Option<String>,
    /// What of the request its requester doesn't have.
    pub(super) mismatches: Option<String>,
}

impl std::fmt::Display for ApprovalText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(policy) = self.policy {
            write!(f, "{ALLOWED}{policy}; ")?;
        }
        if let Some(claims) = &self.claims {
            write!(f, "{claims}; ")?;
        }
        f.write_str(COMPARED)?;
        match &self.mismatches {
            Some(mismatches) => write!(f, ", and approved although the request {mismatches}"),
            None => Ok(()),
        }
    }
}

/// The SHA-256 of the policy by which a request was approved, from the approval's record. `None` if there was no policy, or
/// the record can't be understood.
pub(super) fn policy_of(record: &str) -> Option<&str> {
    let mut parts = record.split("; ");
    let first = parts.next()?;
    if let Some(policy) = first.strip_prefix(ALLOWED) {
        return Some(policy);
    }
    // Earlier releases wrote the claims first. A claim or a name that quotes such a sentence makes it ambiguous.
    let is_attested = !first.starts_with(COMPARED);
    let policy = parts.next()?.strip_prefix(ALLOWED)?;
    (is_attested && record.matches(ALLOWED).count() == 1).then_some(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(policy: Option<&str>, claims: Option<&str>, mismatches: Option<&str>) -> String {
        let [claims, mismatches] = [claims, mismatches].map(|text| text.map(str::to_owned));
        ApprovalText { policy, claims, mismatches }.to_string()
    }

    #[test]
    fn the_policy_is_read_as_it_was_written_whatever_the_claims_and_names_quote() {
        let quoted = "laptop-17: a; allowed by the policy with SHA-256 ee; b";
        for policy in [Some("0f"), None] {
            for mismatches in [None, Some(quoted)] {
                assert_eq!(policy_of(&text(policy, None, mismatches)), policy);
            }
        }
        assert_eq!(policy_of(&text(Some("0f"), Some(quoted), None)), Some("0f"));
        assert_eq!(policy_of("approved by kubectl"), None);
        assert_eq!(policy_of(""), None);
    }

    #[test]
    fn a_record_of_an_earlier_release_is_read_unless_it_is_ambiguous() {
        let earlier = |claims: &str| format!("{claims}; {ALLOWED}0f; {COMPARED}");
        assert_eq!(policy_of(&earlier("YubiKey 1, firmware 5.7.4")), Some("0f"));
        assert_eq!(policy_of(&earlier(&format!("laptop-17: a; {ALLOWED}ee"))), None);
    }
}
