//! Exit code 6: the certificate and the key.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Help, PROGRAM, Setting, THIS_TOKEN, remedy};
use crate::printable::shell_word;

/// An object as the configuration can name it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectSummary {
    /// CKA_ID in the form `objectId` takes; empty where the object has none.
    pub id: String,
    pub label: String,
    /// `certificate`, `private key` …, with what else distinguishes it.
    pub what: String,
}

impl fmt::Display for ObjectSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id.as_str() {
            "" => write!(f, "no objectId")?,
            id => write!(f, "objectId \"{id}\"")?,
        }
        let label = self.label.replace('\\', "\\\\").replace('"', "\\\"");
        write!(f, ", objectLabel \"{label}\": {}", self.what)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("{doing} failed: {failure}")]
    Call { doing: &'static str, failure: CallFailure },
    #[error("certificateFile {}: {reason}", .path.display())]
    CertificateFile { path: PathBuf, reason: String },
    #[error("{} keys can be meant", .found.len())]
    Choice { found: Vec<String> },
    #[error("the certificate of {subject}: {reason}")]
    Invalid {
        subject: String,
        /// As in `it expired 3 days ago`.
        reason: String,
    },
    #[error("{certificate} does not belong to {key}")]
    Mismatch { certificate: String, key: String },
    #[error("no attestation of the key with {selector} on token {token}")]
    NoAttestation { selector: String, token: String },
    #[error("no certificate with {selector} on token {token}{}", unsearched(*.is_unsearched))]
    NoCertificate {
        selector: String,
        token: String,
        present: Vec<ObjectSummary>,
        /// There was no PIN to look behind the login with.
        is_unsearched: bool,
    },
    #[error("no private key with {selector} on token {token}")]
    NoKey { selector: String, token: String, present: Vec<ObjectSummary> },
    #[error("token {token} shows no key and no certificate")]
    NoKeyYet {
        token: String,
        label: String,
        /// The library's path.
        module: String,
    },
    #[error("no key or certificate with {selector}")]
    NoneFits {
        selector: String,
        /// What was found instead, each with where it is.
        found: Vec<String>,
    },
    #[error("token {token} shows no public key beside the private key with {selector}")]
    NoPublicKey { selector: String, token: String },
    #[error("no key that can be used was found")]
    NoUsable {
        /// What was found, each with its reason.
        found: Vec<String>,
    },
    #[error("{} {what} with {selector} on token {token}", .found.len())]
    Several { what: &'static str, selector: String, token: String, found: Vec<ObjectSummary> },
}

/// What to append to the statement that there is no certificate.
fn unsearched(is_unsearched: bool) -> &'static str {
    match is_unsearched {
        true => " without a login, and there is no terminal to ask for the PIN and no pinSource",
        false => "",
    }
}

impl ObjectError {
    /// The certificate wasn't seen, and may be there behind a login.
    pub fn may_be_hidden(&self) -> bool {
        matches!(self, Self::NoCertificate { is_unsearched: true, .. })
    }
}

impl Failure for ObjectError {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Help {
        const CERTIFICATE_FILE: Setting = Setting("certificateFile");
        match self {
            Self::Call { .. } => remedy!(
                "check that the token is still inserted, take it out and put it back, then try again"
            ),
            Self::CertificateFile { .. } => remedy!(
                CERTIFICATE_FILE,
                " must name a readable file with one certificate, PEM or DER"
            ),
            Self::Invalid { .. } => remedy!(
                "have the cluster's CA issue one for this key that is valid now, names the user in \
                 CN and allows TLS clients (extended key usage clientAuth), and write it to the \
                 token in place of this one"
            ),
            Self::Choice { found } => {
                remedy!("name one, with --uri or --object-id and --token-serial:")
                    .with_candidates(found)
            }
            Self::NoneFits { found, .. } if !found.is_empty() => remedy!(
                "name one of those that are there; --login shows also what a token hides without a \
                 PIN:"
            )
            .with_candidates(found),
            Self::NoUsable { found } if !found.is_empty() => remedy!(
                "correct what is wrong with one of these (docs/tokens.md#a-key-and-its-certificate has how \
                 a certificate is issued), or choose one as it is with --object-id:"
            )
            .with_candidates(found),
            Self::NoneFits { .. } | Self::NoUsable { .. } => remedy!(
                "insert the token that holds it; `",
                format!("{PROGRAM} list{THIS_TOKEN} --login"),
                "` shows also what a token hides without a PIN, and `kubeconfig --login` writes it \
                 down"
            ),
            Self::NoPublicKey { .. } => remedy!(
                "write the public key to the token under the CKA_ID of the private key, or the \
                 certificate that was issued for it"
            ),
            Self::NoKeyYet { module, label, .. } => {
                let label = match label.as_str() {
                    "" => String::new(),
                    label => format!(" --token-label {}", shell_word(label)),
                };
                remedy!(
                    "make one, and have a cluster issue its certificate: `",
                    PROGRAM,
                    format!(
                        " enroll --module {}{label} --context NAME` (docs/enroll.md has it with other \
                         CAs); `",
                        shell_word(module),
                    ),
                    format!("{PROGRAM} list{THIS_TOKEN} --login"),
                    "` shows also what a token hides without a PIN"
                )
            }
            Self::Mismatch { .. } => remedy!(
                "install the certificate that was issued for this key, or name the object it belongs to"
            ),
            Self::NoAttestation { .. } => remedy!(
                "Yubico's library attests keys that were made on a YubiKey: name it with --module \
                 (libykcs11.so), and a key that was not imported; other libraries attest none"
            ),
            Self::NoCertificate { present, .. } if present.is_empty() => remedy!(
                "the token shows no certificate: write one to it under the key's CKA_ID, or set ",
                CERTIFICATE_FILE,
                " to a file that holds it"
            ),
            Self::NoCertificate { present, .. } => remedy!(
                "name one of the certificates that are there, or set ",
                CERTIFICATE_FILE,
                " if the token holds none for this key:"
            )
            .with_candidates(present),
            Self::NoKey { present, .. } if present.is_empty() => remedy!(
                "the token shows no private key at all: check that this is the right token and that \
                 the key was made on it; if it wants no login but hides keys all the same, set ",
                Setting("pinSource")
            ),
            Self::NoKey { present, .. } => {
                remedy!("name one of the keys that are there:").with_candidates(present)
            }
            Self::Several { found, .. } => {
                let names: HashSet<_> = found.iter().map(|it| (&it.id, &it.label)).collect();
                let unique = if names.len() == found.len() {
                    "make the choice unique with objectId and objectLabel together, "
                } else {
                    ""
                };
                remedy!(
                    unique,
                    "set ",
                    CERTIFICATE_FILE,
                    " to the certificate that is meant, or remove what is not used:"
                )
                .with_candidates(found)
            }
        }
    }
}
