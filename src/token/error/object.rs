//! Exit code 6: the certificate and the key.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use super::CallFailure;
use crate::error::{Failure, Remedy};
use crate::printable::shell_word;

/// An object as the configuration can name it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObjectSummary {
    /// CKA_ID in the form `objectId` takes; empty where the object has none.
    pub id: String,
    pub label: String,
    /// `certificate`, `private key` …, with what else tells it from others.
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

#[derive(Debug)]
pub enum ObjectError {
    Call {
        doing: &'static str,
        failure: CallFailure,
    },
    CertificateFile {
        path: PathBuf,
        reason: String,
    },
    /// Every API server will refuse this certificate.
    Invalid {
        subject: String,
        /// As in `it expired 3 days ago`.
        reason: String,
    },
    /// Nothing was chosen among these.
    Choice {
        found: Vec<String>,
    },
    /// The certificate's public key is not the key's.
    Mismatch {
        certificate: String,
        key: String,
    },
    NoCertificate {
        selector: String,
        token: String,
        passed_over: usize,
        unreadable: usize,
        present: Vec<ObjectSummary>,
        /// There was no PIN to look behind the login with.
        is_unsearched: bool,
    },
    NoKey {
        selector: String,
        token: String,
        present: Vec<ObjectSummary>,
    },
    /// A token is there, and nothing on it.
    NoKeyYet {
        token: String,
        label: String,
        /// The library's path.
        module: String,
    },
    /// The selector names no object of any token that was looked at.
    NoneFits {
        selector: String,
        /// What was found instead, each with where it is.
        found: Vec<String>,
    },
    /// No key that a configuration could name was found on any token.
    NoUsable {
        /// What was found, each with its reason.
        found: Vec<String>,
    },
    Several {
        what: &'static str,
        selector: String,
        token: String,
        found: Vec<ObjectSummary>,
    },
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { doing, failure } => write!(f, "{doing} failed: {failure}"),
            Self::CertificateFile { path, reason } => {
                write!(f, "certificateFile {}: {reason}", path.display())
            }
            Self::Invalid { subject, reason } => {
                write!(f, "the certificate of {subject}: {reason}")
            }
            Self::Choice { found } => write!(f, "{} keys can be meant", found.len()),
            Self::NoneFits { selector, .. } => write!(f, "no key or certificate with {selector}"),
            Self::NoKeyYet { token, .. } => {
                write!(f, "token {token} shows no key and no certificate")
            }
            Self::NoUsable { .. } => f.write_str("no key that can be used was found"),
            Self::Mismatch { certificate, key } => {
                write!(f, "{certificate} does not belong to {key}")
            }
            Self::NoCertificate {
                selector,
                token,
                passed_over,
                unreadable,
                is_unsearched,
                ..
            } => {
                write!(f, "no certificate with {selector} on token {token}")?;
                if *is_unsearched {
                    write!(
                        f,
                        " without a login, and there is no terminal to ask for the PIN and no \
                         pinSource"
                    )?;
                }
                if *passed_over > 0 {
                    write!(f, " (session objects passed over: {passed_over})")?;
                }
                if *unreadable > 0 {
                    write!(f, " (certificates that can't be read: {unreadable})")?;
                }
                Ok(())
            }
            Self::NoKey {
                selector, token, ..
            } => {
                write!(f, "no private key with {selector} on token {token}")
            }
            Self::Several {
                what,
                selector,
                token,
                found,
            } => {
                write!(f, "{} {what} with {selector} on token {token}", found.len())
            }
        }
    }
}

impl ObjectError {
    /// The certificate wasn't seen, and may be there behind a login.
    pub fn may_be_hidden(&self) -> bool {
        matches!(
            self,
            Self::NoCertificate {
                is_unsearched: true,
                ..
            }
        )
    }
}

impl std::error::Error for ObjectError {}

impl Failure for ObjectError {
    fn exit_code(&self) -> u8 {
        6
    }

    fn remedy(&self) -> Remedy {
        match self {
            Self::Call { .. } => Remedy::new(
                "check that the token is still inserted, take it out and put it back, then try again",
            ),
            Self::CertificateFile { .. } => Remedy::new(
                "certificateFile must name a readable file with one certificate, PEM or DER",
            ),
            Self::Invalid { .. } => Remedy::new(
                "have the cluster's CA issue one for this key that is valid now, names the user in \
                 CN and allows TLS clients (extended key usage clientAuth), and write it to the \
                 token in place of this one",
            ),
            Self::Choice { found } => Remedy::with_candidates(
                "name one, with --uri or --object-id and --token-serial:",
                found,
            ),
            Self::NoneFits { found, .. } if !found.is_empty() => Remedy::with_candidates(
                "name one of those that are there; --login shows also what a token hides without a \
                 PIN:",
                found,
            ),
            Self::NoneFits { .. } => Remedy::new(
                "insert the token that holds it; `list --login` shows also what a token hides without a \
                 PIN, and `kubeconfig --login` writes it down",
            ),
            Self::NoUsable { found } if found.is_empty() => Remedy::new(
                "insert the token that holds it; `list --login` shows also what a token hides without a \
                 PIN, and `kubeconfig --login` writes it down",
            ),
            Self::NoKeyYet { module, label, .. } => Remedy::new(format!(
                "make one: pkcs11-tool --module {}{} --login --keypairgen --key-type EC:prime256v1 \
                 --usage-sign --id 10 --label NAME, and have a certificate issued for it: \
                 docs/tokens.md#a-key-and-its-certificate; `list --login` shows also what a token hides \
                 without a PIN",
                shell_word(module),
                match label.as_str() {
                    "" => String::new(),
                    label => format!(" --token-label {}", shell_word(label)),
                }
            )),
            Self::NoUsable { found } => Remedy::with_candidates(
                "correct what is wrong with one of these (docs/tokens.md#a-key-and-its-certificate has how \
                 a certificate is issued), or choose one as it is with --object-id:",
                found,
            ),
            Self::Mismatch { .. } => Remedy::new(
                "install the certificate that was issued for this key, or name the object it belongs to",
            ),
            Self::NoCertificate { present, .. } if present.is_empty() => Remedy::new(
                "the token shows no certificate: write one to it under the key's CKA_ID, or set \
                 certificateFile to a file that holds it",
            ),
            Self::NoCertificate { present, .. } => Remedy::with_candidates(
                "name one of the certificates that are there, or set certificateFile if the token \
                 holds none for this key:",
                present,
            ),
            Self::NoKey { present, .. } if present.is_empty() => Remedy::new(
                "the token shows no private key at all: check that this is the right token and that \
                 the key was made on it; if it wants no login but hides keys all the same, set \
                 pinSource",
            ),
            Self::NoKey { present, .. } => {
                Remedy::with_candidates("name one of the keys that are there:", present)
            }
            Self::Several { found, .. } => {
                let name = |it: &ObjectSummary| (it.id.clone(), it.label.clone());
                let names: HashSet<_> = found.iter().map(name).collect();
                Remedy::with_candidates(
                    if names.len() == found.len() {
                        "make the choice unique with objectId and objectLabel together, set \
                         certificateFile to the certificate that is meant, or remove what is not used:"
                    } else {
                        "set certificateFile to the certificate that is meant, or remove what is not \
                         used:"
                    },
                    found,
                )
            }
        }
    }
}
