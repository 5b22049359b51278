//! What a token itself says of where a key was made, as it goes into the request for the key's certificate.

use attestation::{Evidence, YubiKeyClaims};
use config::ObjectSelector;
use messages::report;
use token::Token;

/// A YubiKey's attestation of a key.
#[derive(Clone, Debug)]
pub struct KeyEvidence {
    pub evidence: Evidence,
    /// What it says, and so discloses. Nobody has verified it here.
    pub claims: YubiKeyClaims,
}

impl KeyEvidence {
    /// Of the key with this selector; `None` for a token that attests nothing, and for a key that was imported. No PIN is
    /// needed for it.
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
