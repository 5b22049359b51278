//! The document that `list --json` prints, described in docs/commands.md.

use std::fmt;

use clap::builder::styling::Style;
use serde::{Deserialize, Serialize};

use crate::cli::key::options::{option, set};
use crate::cli::session::{BAD, CONCERN};
use config::{OPTIONS, ObjectSelector, TokenName};
use files::lock::BUSY;
use messages::error::{DOCUMENT_VERSION, Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::printable;
use protocol::Configuration;
use token::{PinState, blank_token};

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Listing {
    pub(in crate::cli) api_version: String,
    pub(in crate::cli) libraries: Vec<LibraryEntry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct LibraryEntry {
    pub(in crate::cli) path_lib: String,
    /// The initArgs with which the library was initialised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) init_args: Option<String>,
    /// Why nothing is known of the library's tokens.
    pub(in crate::cli) error: Option<ErrorEntry>,
    /// The names of the library's slots, if none of them has a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) empty_slots: Option<Vec<String>>,
    /// The slots of tokens that are not initialised, if the library has no token that can be used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::cli) uninitialized_slots: Vec<u64>,
    pub(in crate::cli) tokens: Vec<TokenEntry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct TokenEntry {
    #[serde(flatten)]
    pub(in crate::cli) name: TokenName,
    pub(in crate::cli) login_required: bool,
    /// Whether the token takes no key and no certificate.
    #[serde(default)]
    pub(in crate::cli) write_protected: bool,
    /// Whether another token of the library has the same serial number, so that the label is needed, too.
    pub(in crate::cli) needs_label: bool,
    /// Whether another token has the same serial number and the same label.
    pub(in crate::cli) needs_slot_id: bool,
    pub(in crate::cli) pin: PinEntry,
    /// Why not all objects of the token are listed.
    pub(in crate::cli) error: Option<ErrorEntry>,
    /// How many certificates of CAs without a key the token has. They are not listed.
    pub(in crate::cli) ca_certificates: usize,
    pub(in crate::cli) keys: Vec<KeyEntry>,
}

/// What is known of the token's PIN. Nothing is known if the slot can't be read.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::cli) enum PinEntry {
    #[default]
    Unknown,
    #[serde(untagged)]
    Read(PinState),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct KeyEntry {
    /// The CKA_ID in the form that the configuration takes; `null` for an object without one.
    pub(in crate::cli) object_id: Option<String>,
    pub(in crate::cli) object_label: String,
    /// The key's type and size, such as `RSA-2048`; empty if the token doesn't say.
    pub(in crate::cli) kind: String,
    /// The SHA-256 of the public key, as `enroll` prints it; `null` if the token shows none.
    pub(in crate::cli) fingerprint: Option<String>,
    pub(in crate::cli) certificate: Option<CertificateEntry>,
    pub(in crate::cli) notes: Vec<KeyNote>,
    /// Whether a configuration that names the key should work, as far as can be seen.
    pub(in crate::cli) usable: bool,
    /// A `pkcs11:` URI (RFC 7512) that names library, token and key; empty for a key that nothing can name.
    pub(in crate::cli) uri: String,
    /// Whether several objects have this `objectId`, so that the label has to say which is meant.
    pub(in crate::cli) needs_label: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct CertificateEntry {
    pub(in crate::cli) subject: String,
    /// The user for whom Kubernetes takes the bearer.
    pub(in crate::cli) user: Option<String>,
    /// The groups of the user.
    pub(in crate::cli) groups: Vec<String>,
    pub(in crate::cli) issuer: String,
    /// The serial number in hexadecimal digits.
    pub(in crate::cli) serial_number: String,
    /// The certificate's id in an API server's audit log, `X509SHA256=…`.
    pub(in crate::cli) credential_id: String,
    /// The beginning of the validity, in RFC 3339.
    pub(in crate::cli) not_before: String,
    pub(in crate::cli) not_after: String,
    /// The end of the validity for people: `2026-11-22 14:05 UTC`.
    pub(in crate::cli) expires: String,
}

/// What an operator should know of a key before relying on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::cli) enum KeyNote {
    /// The key wants the PIN for each signature (CKA_ALWAYS_AUTHENTICATE).
    PinPerSignature,
    NoCertificate,
    /// The certificate can't be used, for this reason.
    UnusableCertificate(String),
    Expired,
    #[serde(rename = "expires-soon")]
    RenewalDue,
    NotYetValid,
    NotForClients,
    /// The certificate has no CN.
    NoUser,
    /// A login has shown that there is no private key.
    NoPrivateKey,
    /// The certificate belongs to another key than the one under its CKA_ID.
    OtherKey,
    /// The configuration means another certificate of the same key, which is valid for longer.
    Superseded,
    /// The certificate of another key has the same CKA_ID and label.
    Ambiguous,
    /// The private key's CKA_SIGN is false.
    NotForSigning,
    /// Only a label could name the key, and the key's is empty or isn't text.
    Unnameable,
}

impl KeyNote {
    /// Whether the key can't be used as it is.
    pub(in crate::cli) fn is_grave(&self) -> bool {
        !matches!(self, Self::PinPerSignature | Self::RenewalDue)
    }
}

impl fmt::Display for KeyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PinPerSignature => "PIN per signature",
            Self::NoCertificate => "no certificate",
            Self::UnusableCertificate(reason) => return f.write_str(reason),
            Self::Expired => "expired",
            Self::RenewalDue => "renewal due",
            Self::NotYetValid => "not valid yet",
            Self::NotForClients => "not for TLS clients",
            Self::NoUser => "no user (CN)",
            Self::NoPrivateKey => "no private key",
            Self::OtherKey => "certificate of another key",
            Self::Superseded => "superseded",
            Self::Ambiguous => "objectId and label of another key",
            Self::NotForSigning => "key not for signing",
            Self::Unnameable => "can't be named: no objectId of its own, and no label that is text (a NUL in it, or not UTF-8)",
        })
    }
}

/// A key with its token and library.
#[derive(Clone, Copy)]
pub(in crate::cli) struct SelectedKey<'a> {
    pub(in crate::cli) library: &'a LibraryEntry,
    pub(in crate::cli) token: &'a TokenEntry,
    pub(in crate::cli) key: &'a KeyEntry,
}

/// An error in the document.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct ErrorEntry {
    pub(in crate::cli) message: String,
    pub(in crate::cli) help: String,
    pub(in crate::cli) exit_code: u8,
    /// Whether another request has the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::cli) is_busy: bool,
}

impl From<&Error> for ErrorEntry {
    fn from(error: &Error) -> Self {
        Self {
            message: error.to_string(),
            help: error.remedy().to_string(),
            exit_code: error.exit_code(),
            is_busy: error.is(&BUSY),
        }
    }
}

impl LibraryEntry {
    /// The entry of a library of whose tokens nothing is known.
    pub(in crate::cli) fn failed(path_lib: String, error: &Error) -> Self {
        Self { path_lib, error: Some(error.into()), ..Self::default() }
    }

    /// The error that the library's tokens are not initialised, if that is so.
    pub(in crate::cli) fn blank(&self) -> Option<Error> {
        Some(blank_token(*self.uninitialized_slots.first()?, &self.path_lib, &[]))
    }
}

impl TokenEntry {
    /// What a person should know of the PIN's state, if anything.
    pub(in crate::cli) fn pin_note(&self) -> Option<(&'static str, Style)> {
        let PinEntry::Read(pin) = self.pin else { return None };
        match pin {
            PinState::Good => None,
            PinState::CountLow => Some(("a wrong PIN was counted", CONCERN)),
            PinState::FinalTry => Some(("one PIN try left", BAD)),
            PinState::Locked => Some(("PIN locked", BAD)),
            PinState::ToBeChanged => Some(("PIN must be changed", BAD)),
        }
    }

    /// Whether other tokens have the same label and serial number, so that the slot is needed, too.
    pub(in crate::cli) fn needs_slot(&self, label: &str, serial: &str) -> bool {
        self.needs_slot_id || label.is_empty() && (serial.is_empty() || self.needs_label)
    }

    /// Whether the token has no keys, and nothing was left out.
    pub(in crate::cli) fn is_bare(&self) -> bool {
        self.keys.is_empty() && self.error.is_none()
    }
}

impl KeyEntry {
    /// Whether the selector means the key. A selector that names nothing means every key.
    pub(in crate::cli) fn fits(&self, selector: &ObjectSelector) -> bool {
        let id = selector.id.as_ref().map(ToString::to_string);
        let label = selector.label.as_deref();
        id.is_none_or(|id| self.object_id.as_ref() == Some(&id))
            && label.is_none_or(|label| label == self.object_label)
    }
}

impl Listing {
    pub(in crate::cli) fn new(libraries: Vec<LibraryEntry>) -> Self {
        Self { api_version: DOCUMENT_VERSION.to_owned(), libraries }
    }

    /// The error that no token has a key or a certificate, if there are tokens and all of them could be seen.
    pub(in crate::cli) fn emptiness(&self) -> Option<Error> {
        let is_empty = |token: &TokenEntry| token.is_bare() && token.ca_certificates == 0;
        if !self.tokens().all(|(_, token)| is_empty(token)) {
            return None;
        }
        let hidden = Help::from(command("list").and(HelpPart::Token).and(" --login"))
            .and(" shows also what a token hides without a PIN");
        let writable = self.tokens().find_map(|(library, token)| {
            (!token.write_protected).then_some((for_writing(library)?, token))
        });
        let Some((library, token)) = writable else {
            let label = &self.tokens().next()?.1.name.label;
            let text = format!("token \"{label}\" shows no key and no certificate, and takes none");
            let help = Help::from(
                "insert another token, or set initArgs (--init-args) so that its library finds what the token has and opens \
                 it for writing (NSS: configDir='sql:/path' certPrefix='' keyPrefix='' secmod=''); ",
            );
            return Some(Error::new(Exit::Object, text).help(help.and(hidden)));
        };
        let (named, label) = (token_options(&library, token), &token.name.label);
        let help = Help::from("make one, and have a cluster issue its certificate: ")
            .and(command(format!("enroll{named}")))
            .and(" (docs/enroll.md has it with other CAs); ");
        let text = format!("token \"{label}\" shows no key and no certificate");
        Some(Error::new(Exit::Object, text).help(help.and(hidden)))
    }

    /// The error that another request has a library or a token, so that nobody knows what is there, if that is so.
    pub(in crate::cli) fn busy(&self) -> Option<Error> {
        let of_libraries = self.libraries.iter().map(|library| &library.error);
        let of_tokens = self.tokens().map(|(_, token)| &token.error);
        let busy = of_libraries.chain(of_tokens).flatten().find(|error| error.is_busy)?;
        Some(Error::new(Exit::Token, &busy.message).kind(BUSY).help(&busy.help))
    }

    /// The tokens, each with its library.
    pub(in crate::cli) fn tokens(&self) -> impl Iterator<Item = (&LibraryEntry, &TokenEntry)> {
        let libraries = self.libraries.iter();
        libraries.flat_map(|library| library.tokens.iter().map(move |token| (library, token)))
    }

    /// The keys, each with its library and token.
    pub(in crate::cli) fn keys(&self) -> impl Iterator<Item = SelectedKey<'_>> {
        self.tokens().flat_map(|(library, token)| {
            token.keys.iter().map(move |key| SelectedKey { library, token, key })
        })
    }
}

/// The entry with which the library has to be started so that its tokens can be written to: NSS without
/// `flags=readOnly`. `None` if that flag is one of several.
fn for_writing(library: &LibraryEntry) -> Option<LibraryEntry> {
    let mut init_args = library.init_args.clone();
    if let Some(text) = &mut init_args {
        *text = text.replace(" flags=readOnly", "");
        if text.contains("readOnly") {
            return None;
        }
    }
    let path_lib = library.path_lib.clone();
    Some(LibraryEntry { path_lib, init_args, ..LibraryEntry::default() })
}

/// The configuration that selects the token by what stays: its serial number, since slot numbers change.
pub(in crate::cli) fn token_configuration(
    library: &LibraryEntry,
    token: &TokenEntry,
) -> Configuration {
    let (label, serial) = (typed(&token.name.label), typed(&token.name.serial));
    let mut configuration = Configuration::default();
    set(&mut configuration, "pathLib", Some(&library.path_lib));
    set(&mut configuration, "initArgs", library.init_args.as_deref());
    set(&mut configuration, "tokenSerial", Some(serial));
    if serial.is_empty() || token.needs_label {
        set(&mut configuration, "tokenLabel", Some(label));
    }
    if token.needs_slot(label, serial) {
        set(&mut configuration, "slotId", Some(&token.name.slot.to_string()));
    }
    configuration
}

/// The options that select the token, each with a space before it. They include the label, by which people know the
/// token.
pub(in crate::cli) fn token_options(library: &LibraryEntry, token: &TokenEntry) -> String {
    let mut configuration = token_configuration(library, token);
    set(&mut configuration, "tokenLabel", Some(typed(&token.name.label)));
    let mut options = String::new();
    for (key, name) in OPTIONS {
        options += &option(name, configuration.value(key));
    }
    options
}

/// The label if a URI can name an object by it, or else nothing. A label that isn't text can't be found again by the
/// part of it that could be read.
pub(super) fn nameable(text: &str) -> &str {
    if text.contains(['\0', char::REPLACEMENT_CHARACTER]) { "" } else { text }
}

/// The text if it can be typed as it is printed, or else nothing.
fn typed(text: &str) -> &str {
    if printable(text) == text { text } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_named_by_what_can_be_typed() {
        let library = LibraryEntry { path_lib: "/l.so".to_owned(), ..LibraryEntry::default() };
        for (label, serial, options) in [
            ("prod", "5d9c", " --token-label=prod --token-serial=5d9c"),
            ("it's", "", " --token-label='it'\\''s'"),
            ("US\0CA", "5d9c", " --token-serial=5d9c"),
            ("US\0CA", "", " --slot-id=7"),
        ] {
            let name = TokenName { slot: 7, label: label.to_owned(), serial: serial.to_owned() };
            let token = TokenEntry { name, ..TokenEntry::default() };
            assert_eq!(token_options(&library, &token), format!(" --module=/l.so{options}"));
        }
    }
}
