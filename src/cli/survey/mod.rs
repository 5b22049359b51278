//! What there is to authenticate with: libraries, their tokens, and the keys and certificates on
//! them. This is also the document that `list --json` prints, described in docs/commands.md.

#![forbid(unsafe_code)]

mod library;
mod machine;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(super) use library::{Access, look};
pub(super) use machine::look_everywhere;

use crate::error::Error;

/// The document's version; fields may be added to it, none is taken away or changes its meaning.
const API_VERSION: &str = "pkcs11-external-signer/v1";

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Survey {
    pub(super) api_version: String,
    pub(super) libraries: Vec<Library>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Library {
    pub(super) path_lib: String,
    /// Why nothing is known of its tokens.
    pub(super) error: Option<Fault>,
    pub(super) tokens: Vec<Token>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    pub(super) slot_id: u64,
    pub(super) token_label: String,
    pub(super) token_serial: String,
    pub(super) login_required: bool,
    pub(super) pin: PinState,
    /// Why not all of its objects are listed.
    pub(super) error: Option<Fault>,
    pub(super) keys: Vec<Key>,
}

/// What the token says of its PIN (CK_TOKEN_INFO, flags).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PinState {
    Good,
    CountLow,
    FinalTry,
    Locked,
    ToBeChanged,
    /// The slot's description can't be read.
    Unknown,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Key {
    /// In the form the configuration takes; `null` for an object without CKA_ID.
    pub(super) object_id: Option<String>,
    pub(super) object_label: String,
    /// Type and size, such as `RSA-2048`; empty where the token doesn't tell.
    pub(super) kind: String,
    pub(super) certificate: Option<CertificateEntry>,
    pub(super) notes: Vec<Note>,
    /// Whether a configuration that names it should work, as far as can be seen.
    pub(super) usable: bool,
    /// A `pkcs11:` URI (RFC 7512) that names library, token and key.
    pub(super) uri: String,
    /// Several objects have this `objectId`: the label has to say which.
    pub(super) needs_label: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateEntry {
    pub(super) subject: String,
    /// Kubernetes takes the bearer for this user …
    pub(super) user: Option<String>,
    /// … in these groups.
    pub(super) groups: Vec<String>,
    pub(super) issuer: String,
    /// RFC 3339.
    pub(super) not_before: String,
    pub(super) not_after: String,
    /// `not_after` as seen from now: `in 3 months`.
    pub(super) expires: String,
}

/// What an operator should know of a key before relying on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Note {
    /// CKA_ALWAYS_AUTHENTICATE.
    PinPerSignature,
    NoCertificate,
    /// With the reason.
    UnusableCertificate(String),
    Expired,
    ExpiresSoon,
    NotYetValid,
    NotForClients,
    /// Seen after a login: there is none.
    NoPrivateKey,
}

impl Note {
    /// Whether the key can't be used as it is.
    pub(super) fn is_grave(&self) -> bool {
        !matches!(self, Self::PinPerSignature | Self::ExpiresSoon)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PinPerSignature => "PIN per signature",
            Self::NoCertificate => "no certificate",
            Self::UnusableCertificate(reason) => return f.write_str(reason),
            Self::Expired => "expired",
            Self::ExpiresSoon => "expires soon",
            Self::NotYetValid => "not valid yet",
            Self::NotForClients => "not for TLS clients",
            Self::NoPrivateKey => "no private key",
        })
    }
}

impl PinState {
    /// What there is to say of it, if anything.
    pub(super) fn words(self) -> Option<&'static str> {
        match self {
            Self::Good | Self::Unknown => None,
            Self::CountLow => Some("a wrong PIN was counted"),
            Self::FinalTry => Some("one PIN try left"),
            Self::Locked => Some("PIN locked"),
            Self::ToBeChanged => Some("PIN must be changed"),
        }
    }
}

/// An error, as data.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) help: String,
    pub(super) exit_code: u8,
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        Self {
            message: error.to_string(),
            help: error.help().to_string(),
            exit_code: error.exit_code(),
        }
    }
}

impl Survey {
    pub(super) fn new(libraries: Vec<Library>) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            libraries,
        }
    }

    /// The usable keys, each with where it is.
    pub(super) fn usable_keys(&self) -> impl Iterator<Item = (&Library, &Token, &Key)> {
        self.libraries.iter().flat_map(|library| {
            library.tokens.iter().flat_map(move |token| {
                let usable = token.keys.iter().filter(|key| key.usable);
                usable.map(move |key| (library, token, key))
            })
        })
    }
}
