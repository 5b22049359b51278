//! What a token itself says of where a key was made, as it goes into the request for the key's certificate.

use attestation::yubikey::HARDWARE_GROUPS;
use attestation::{Evidence, YubiKeyClaims};
use config::ObjectSelector;
use crypto::certificate::PublicKey;
use messages::error::{Error, Exit};
use messages::report;
use token::Token;
use x509_cert::der::Encode as _;

use super::request::{public_key_info, unencodable};

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
    /// Where it comes from, or what leaves it out.
    note: String,
}

impl KeyEvidence {
    /// What the person is told before the request is sent.
    pub fn disclosure(&self) -> String {
        let Self { claims, note, .. } = self;
        format!("the request tells the cluster: {claims} ({note})")
    }

    /// Of this key, in a file of PEM with the device's certificate and those between it and a root. `source` says in messages
    /// where it comes from.
    pub fn from_pem(pem: &[u8], source: &str, key: &PublicKey) -> Result<Self, Error> {
        let info = public_key_info(key).and_then(|info| info.to_der()).map_err(unencodable)?;
        let evidence = Evidence::from_pem(pem, source, &info)?;
        let claims = YubiKeyClaims::unproven(&evidence.attestation).map_err(|refusal| {
            let text =
                format!("{source} attests the key in a form that nobody would take: {refusal}");
            Error::new(Exit::Object, text).help("leave it out; nothing was sent")
        })?;
        if !evidence.has_device() {
            report::warning(&format!(
                "{source} has no certificate of the device, without which an approver can hardly verify it: append what `ykman \
                 piv certificates export f9 -` prints"
            ));
        }
        Ok(Self { evidence, claims, note: format!("as {source} has it") })
    }

    /// The evidence of the key with this selector; `None` for a token that attests nothing, and for a key that was
    /// imported. No PIN is needed for it.
    pub fn of(token: &Token, selector: &ObjectSelector) -> Option<Self> {
        if !token.state().is_yubikey() {
            return None;
        }
        let evidence = Evidence::of_chain(&token.attestation(selector).ok()?)?;
        match YubiKeyClaims::unproven(&evidence.attestation) {
            Ok(claims) => {
                let note = "--no-attestation leaves that out".to_owned();
                Some(Self { evidence, claims, note })
            }
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
