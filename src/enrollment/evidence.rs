//! What a token itself says of where a key was made, as it goes into the request for the key's certificate.

use attestation::yubikey::HARDWARE_GROUPS;
use attestation::{Evidence, YubiKeyClaims};
use config::ObjectSelector;
use messages::report;
use token::Token;

/// The groups that another key of the same user may be in, too: all but those that evidence opens, to one key.
pub fn for_any_key(groups: Vec<String>) -> Vec<String> {
    groups.into_iter().filter(|group| !group.starts_with(HARDWARE_GROUPS)).collect()
}

/// A YubiKey's attestation of a key.
#[derive(Clone, Debug)]
pub struct KeyEvidence {
    pub evidence: Evidence,
    /// What it says, and so discloses. Nobody has verified it here.
    pub claims: YubiKeyClaims,
}

impl KeyEvidence {
    /// What the person is told before the request is sent.
    pub fn disclosure(&self) -> String {
        let claims = &self.claims;
        format!("the request tells the cluster: {claims} (--no-attestation leaves that out)")
    }

    /// The evidence of the key with this selector; `None` for a token that attests nothing, and for a key that was
    /// imported. No PIN is needed for it.
    pub fn of(token: &Token, selector: &ObjectSelector) -> Option<Self> {
        if !token.state().is_yubikey() {
            return None;
        }
        let evidence = Evidence::of_chain(&token.attestation(selector).ok()?)?;
        match YubiKeyClaims::unproven(&evidence.attestation) {
            Ok(claims) => Some(Self { evidence, claims }),
            Err(refusal) => {
                report::warning(&format!(
                    "token {} attests the key in a form that nobody would take, so the request goes without: {refusal}",
                    token.name()
                ));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_key_is_asked_into_the_groups_of_one_in_hardware() {
        let groups = ["dev", "hw:attested", "hw:yubikey:15873456", "hwlab"].map(str::to_owned);
        assert_eq!(for_any_key(groups.to_vec()), ["dev", "hwlab"]);
    }
}
