//! What shows where a key was made, as it goes into the request for the key's certificate.

use attestation::bundle::Statement;
use attestation::yubikey::{HARDWARE_GROUPS, TouchPolicy};
use attestation::{AttestationBundle, Refusal, YubiKeyClaims};
use config::ObjectSelector;
use crypto::certificate::PublicKey;
use messages::error::{Error, Exit};
use messages::report;
use token::Token;
use x509_cert::der::Encode as _;

use super::request::unencodable;

/// The groups that the certificate for another key of the user may have, too: all but those that an attestation opened,
/// since that was about one key.
pub fn for_any_key(groups: Vec<String>) -> Vec<String> {
    groups.into_iter().filter(|group| !group.starts_with(HARDWARE_GROUPS)).collect()
}

/// A device's attestation of a key.
#[derive(Clone, Debug)]
pub struct KeyAttestation {
    pub bundle: AttestationBundle,
    disclosed: Disclosed,
    /// Where the attestation comes from, or which option leaves it out.
    note: String,
}

/// What an attestation says, and so discloses. Nobody has verified it yet.
#[derive(Clone, Debug)]
enum Disclosed {
    YubiKey(YubiKeyClaims),
    /// A statement that only the approver's verifier can read.
    Statement {
        kind: String,
        /// The length of the statement in bytes.
        length: usize,
    },
}

impl KeyAttestation {
    fn of_bundle(bundle: AttestationBundle, note: String) -> Result<Self, Refusal> {
        let disclosed = match &bundle.statement {
            Statement::YubiKey(der) => Disclosed::YubiKey(YubiKeyClaims::unproven(der)?),
            Statement::Other(other) => {
                Disclosed::Statement { kind: other.kind.to_string(), length: other.der.len() }
            }
        };
        Ok(Self { bundle, disclosed, note })
    }

    /// What the person is told before the request is sent.
    pub fn disclosure(&self) -> String {
        let said = match &self.disclosed {
            Disclosed::YubiKey(claims) => claims.to_string(),
            Disclosed::Statement { kind, length } => {
                format!(
                    "a statement of type {kind} and {length} bytes, for the approver's verifier"
                )
            }
        };
        format!("the request tells the cluster: {said} ({})", self.note)
    }

    /// The groups that the attestation opens, as far as that is known before it is verified.
    pub fn groups(&self) -> Vec<String> {
        match &self.disclosed {
            Disclosed::YubiKey(claims) => claims.groups().to_vec(),
            Disclosed::Statement { .. } => vec![format!("{HARDWARE_GROUPS}attested")],
        }
    }

    /// What a YubiKey says of the key; `None` from another device.
    pub fn yubikey_claims(&self) -> Option<&YubiKeyClaims> {
        match &self.disclosed {
            Disclosed::YubiKey(claims) => Some(claims),
            Disclosed::Statement { .. } => None,
        }
    }

    /// The key's touch policy, if the attestation says it.
    pub fn touch_policy(&self) -> Option<TouchPolicy> {
        self.yubikey_claims().map(|claims| claims.touch_policy)
    }

    /// Reads an attestation of this key from a file in PEM, which also has the device's certificate and those between
    /// it and a root. Messages call the file `source`.
    pub fn from_pem(pem: &[u8], source: &str, key: &PublicKey) -> Result<Self, Error> {
        let info = key.info().and_then(|info| info.to_der()).map_err(unencodable)?;
        let bundle = AttestationBundle::from_pem(pem, source, &info)?;
        if bundle.lacks_device() {
            report::warning(&format!(
                "{source} has no certificate of the device, without which an approver can hardly verify it: append what `ykman \
                 piv certificates export f9 -` prints"
            ));
        }
        Self::of_bundle(bundle, format!("as {source} has it")).map_err(|refusal| {
            let text =
                format!("{source} attests the key in a form that nobody would take: {refusal}");
            Error::new(Exit::Object, text).help("leave it out; nothing was sent")
        })
    }

    /// The token's attestation of the key with this selector. `None` for a token that attests nothing, and for a key
    /// that was imported. No PIN is needed for it.
    pub fn of(token: &Token, selector: &ObjectSelector) -> Option<Self> {
        if !token.state().is_yubikey() {
            return None;
        }
        let bundle = AttestationBundle::of_chain(&token.attestation(selector).ok()?)?;
        match Self::of_bundle(bundle, "--no-attestation leaves that out".to_owned()) {
            Ok(known) => Some(known),
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
