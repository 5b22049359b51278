//! What there is to authenticate with: libraries, their tokens, and the keys and certificates on
//! them. This is also the document that `list --json` prints, described in docs/commands.md.

#![forbid(unsafe_code)]

mod library;
mod machine;

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, iter};

use serde::{Deserialize, Serialize};

use self::library::{ObjectAccess, list_library};
use self::machine::{list_libraries, list_machine};
use super::selection::Selection;
use crate::cli::error::ArgumentNeeds;
use crate::config::{ConfigError, Filter, ObjectSelector, PinSource, TokenName, Uri};
use crate::discovery::Installed;
use crate::error::Error;
use crate::pipeline::Library;
use crate::process::environment::TakenVariables;
use crate::protocol::Configuration;
use crate::report;
use crate::token::{ObjectError, PinState, TokenError};

/// The document's version; fields may be added to it, none is taken away or changes its meaning.
const API_VERSION: &str = "pkcs11-external-signer/v1";

/// What to list.
pub(super) struct ListQuery<'a> {
    pub(super) selection: &'a Selection,
    pub(super) uri: Option<&'a str>,
    pub(super) login: bool,
    /// Of the login; without it, and without one in the URI, a person is asked.
    pub(super) pin_source: Option<&'a str>,
    /// The variable that it names.
    pub(super) variables: &'a TakenVariables,
    /// The number of `-v`; with any, what the libraries write to standard error is shown.
    pub(super) verbosity: u8,
}

/// What the selected library shows without a login and within `limit`; if none is selected, each of
/// `found`.
pub(super) fn list_briefly(
    selection: &Selection,
    found: Vec<Installed>,
    limit: Duration,
) -> Listing {
    let mut selection = selection.clone();
    let named = selection.module.take().map(|path| Installed {
        path: PathBuf::from(path),
        init_args: selection.init_args.take(),
    });
    let libraries = named.map_or(found, |named| vec![named]);
    let arguments: Vec<_> = selection.arguments().collect();
    list_libraries(&libraries, &arguments, limit, false)
}

impl ListQuery<'_> {
    /// Lists the library that is named, in this process, or else every one that is found.
    pub(super) fn run(&self, opened: &mut Option<Library>) -> Result<Listing, Error> {
        // An error in the options is reported once, and not by every process.
        let filter = self.filter()?;
        let pin = PinSource::from_map(&mut self.configuration())?;
        if matches!(pin, Some(PinSource::Configuration(_))) {
            report::warning(
                "the PIN stands on the command line, where every user of the machine can read it; \
                 leave pin-value out to be asked, or give pin-source",
            );
        }
        let access = if self.login {
            ObjectAccess::Login(pin, self.variables)
        } else {
            ObjectAccess::Public
        };
        let needs_module = |argument| {
            let other = "--module <FILE>";
            Err(ArgumentNeeds { argument, other }.into())
        };
        match (self.library(), &filter.library) {
            (Some(path), Some(library)) => {
                let found = list_library(&path, library, &filter, access, opened)?;
                Ok(Listing::new(vec![found]))
            }
            // Several libraries may show the same token, and each would send it the PIN.
            _ if matches!(access, ObjectAccess::Login(Some(_), _)) => {
                needs_module("--login with a stored PIN")
            }
            _ if self.selection.init_args.is_some() => needs_module("--init-args"),
            _ => self.list_machine(),
        }
    }

    /// The library's path, if one is named.
    pub(super) fn library(&self) -> Option<String> {
        let of_uri = || Uri::parse(self.uri?).ok()?.module_path;
        self.selection.module.clone().or_else(of_uri)
    }

    /// The error if a token or an object was asked for that isn't there.
    pub(super) fn miss(&self, listing: &Listing) -> Option<Error> {
        let Filter { token, object, .. } = self.filter().ok()?;
        let mut libraries = listing.libraries.iter();
        // One that is busy may have it, too.
        let is_hidden =
            |library: &LibraryEntry| library.error.as_ref().is_some_and(|it| it.is_busy);
        if libraries.clone().all(|library| library.error.is_some()) || libraries.any(is_hidden) {
            None
        } else if token.is_given() && listing.tokens().next().is_none() {
            let selector = token.to_string();
            Some(TokenError::NoneFits { selector }.into())
        // A token that couldn't be seen whole may have it.
        } else if object.is_given() && listing.tokens().all(TokenEntry::is_bare) {
            let selector = object.to_string();
            let found = Vec::new();
            Some(ObjectError::NoneFits { selector, found }.into())
        } else {
            None
        }
    }

    fn list_machine(&self) -> Result<Listing, Error> {
        let mut arguments: Vec<_> = self.selection.arguments().collect();
        if let Some(Ok(uri)) = self.uri.map(Uri::parse) {
            // Printed anew: without a PIN that stands in it.
            arguments.push(format!("--uri={uri}").into());
        }
        if self.login {
            arguments.push("--login".into());
        }
        arguments.extend(iter::repeat_n("--verbose".into(), self.verbosity.into()));
        list_machine(&arguments, self.login, self.verbosity > 0)
    }

    pub(super) fn filter(&self) -> Result<Filter, ConfigError> {
        Filter::from_map(&mut self.configuration())
    }

    fn configuration(&self) -> Configuration {
        configuration(self.selection, self.uri, self.pin_source)
    }
}

/// What these options say, as a configuration.
pub(super) fn configuration(
    selection: &Selection,
    uri: Option<&str>,
    pin_source: Option<&str>,
) -> Configuration {
    let mut map = selection.configuration([("uri", uri)]);
    if let Some(source) = pin_source {
        PinSource::override_in(&mut map, source);
    }
    map
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listing {
    pub(super) api_version: String,
    pub(super) libraries: Vec<LibraryEntry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LibraryEntry {
    pub(super) path_lib: String,
    /// The initArgs it was initialised with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) init_args: Option<String>,
    /// Why nothing is known of its tokens.
    pub(super) error: Option<ErrorEntry>,
    /// Where it shows no token at all: what its slots call themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) empty_slots: Option<Vec<String>>,
    /// Where no token can be used: the slots of those that are not initialised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) uninitialized_slots: Vec<u64>,
    pub(super) tokens: Vec<TokenEntry>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TokenEntry {
    pub(super) slot_id: u64,
    pub(super) token_label: String,
    pub(super) token_serial: String,
    pub(super) login_required: bool,
    /// Another token of the library has the same serial number, so the label is needed too.
    pub(super) needs_label: bool,
    /// Another one has the same serial number and the same label.
    #[serde(default)]
    pub(super) needs_slot_id: bool,
    /// `None`, or `unknown`, if the slot can't be read.
    #[serde(with = "pin_state")]
    pub(super) pin: Option<PinState>,
    /// Why not all of its objects are listed.
    pub(super) error: Option<ErrorEntry>,
    /// Those without a key, which are not listed.
    pub(super) ca_certificates: usize,
    pub(super) keys: Vec<KeyEntry>,
}

/// [`PinState`], with `unknown` for none.
mod pin_state {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::PinState;

    pub(super) fn serialize<S: Serializer>(
        state: &Option<PinState>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match state {
            Some(state) => state.serialize(serializer),
            None => "unknown".serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PinState>, D::Error> {
        Ok(PinState::deserialize(deserializer).ok())
    }
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KeyEntry {
    /// In the form the configuration takes; `null` for an object without CKA_ID.
    pub(super) object_id: Option<String>,
    pub(super) object_label: String,
    /// Type and size, such as `RSA-2048`; empty if the token doesn't say.
    pub(super) kind: String,
    pub(super) certificate: Option<CertificateEntry>,
    pub(super) notes: Vec<KeyNote>,
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
    /// In hexadecimal digits.
    #[serde(default)]
    pub(super) serial_number: String,
    /// RFC 3339.
    pub(super) not_before: String,
    pub(super) not_after: String,
    /// `not_after` as seen from now: `in 3 months`.
    pub(super) expires: String,
}

/// What an operator should know of a key before relying on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum KeyNote {
    /// CKA_ALWAYS_AUTHENTICATE.
    PinPerSignature,
    NoCertificate,
    /// With the reason.
    UnusableCertificate(String),
    Expired,
    ExpiresSoon,
    NotYetValid,
    NotForClients,
    /// The certificate has no CN.
    NoUser,
    /// Seen after a login: there is none.
    NoPrivateKey,
    /// The certificate isn't that of the key under its CKA_ID.
    OtherKey,
    /// Another certificate of the same key is meant, which is valid longer.
    Superseded,
    /// Another key's certificate has the same CKA_ID and label.
    Ambiguous,
    /// The private key's CKA_SIGN is false.
    NotForSigning,
}

impl KeyNote {
    /// Whether the key can't be used as it is.
    pub(super) fn is_grave(&self) -> bool {
        !matches!(self, Self::PinPerSignature | Self::ExpiresSoon)
    }
}

impl fmt::Display for KeyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PinPerSignature => "PIN per signature",
            Self::NoCertificate => "no certificate",
            Self::UnusableCertificate(reason) => return f.write_str(reason),
            Self::Expired => "expired",
            Self::ExpiresSoon => "expires soon",
            Self::NotYetValid => "not valid yet",
            Self::NotForClients => "not for TLS clients",
            Self::NoUser => "no user (CN)",
            Self::NoPrivateKey => "no private key",
            Self::OtherKey => "certificate of another key",
            Self::Superseded => "superseded",
            Self::Ambiguous => "objectId and label of another key",
            Self::NotForSigning => "key not for signing",
        })
    }
}

/// An error, as data.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorEntry {
    pub(super) message: String,
    pub(super) help: String,
    pub(super) exit_code: u8,
    /// Another request has the token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_busy: bool,
}

impl From<&Error> for ErrorEntry {
    fn from(error: &Error) -> Self {
        Self {
            message: error.to_string(),
            help: report::help(&error.remedy()).to_string(),
            exit_code: error.exit_code(),
            is_busy: matches!(error.downcast_ref(), Some(TokenError::Busy { .. })),
        }
    }
}

impl TokenEntry {
    /// What its PIN's state has to say to a person, if anything.
    pub(super) fn pin_words(&self) -> Option<&'static str> {
        match self.pin? {
            PinState::Good => None,
            PinState::CountLow => Some("a wrong PIN was counted"),
            PinState::FinalTry => Some("one PIN try left"),
            PinState::Locked => Some("PIN locked"),
            PinState::ToBeChanged => Some("PIN must be changed"),
        }
    }

    /// As errors name it.
    pub(super) fn name(&self) -> TokenName {
        TokenName {
            slot: self.slot_id,
            label: self.token_label.clone(),
            serial: self.token_serial.clone(),
        }
    }

    /// All that it has is listed, and that is nothing.
    fn is_bare(&self) -> bool {
        self.keys.is_empty() && self.error.is_none()
    }
}

impl KeyEntry {
    /// Whether the selector means it; one that names nothing means all.
    pub(super) fn fits(&self, selector: &ObjectSelector) -> bool {
        let id = selector.id.as_ref().map(ToString::to_string);
        let label = selector.label.as_deref();
        id.is_none_or(|id| self.object_id.as_ref() == Some(&id))
            && label.is_none_or(|label| label == self.object_label)
    }
}

impl Listing {
    /// Why there may be more than was seen.
    pub(super) fn faults_of_tokens(&self) -> impl Iterator<Item = &ErrorEntry> {
        let of_libraries = self.libraries.iter().filter_map(|it| it.error.as_ref());
        let of_tokens = self.tokens().filter_map(|token| token.error.as_ref());
        of_libraries.filter(|fault| fault.is_busy).chain(of_tokens)
    }

    pub(super) fn new(libraries: Vec<LibraryEntry>) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            libraries,
        }
    }

    /// The error if tokens are seen, all of them, and none has a key or a certificate.
    pub(super) fn emptiness(&self) -> Option<ObjectError> {
        let is_empty = |token: &TokenEntry| token.is_bare() && token.ca_certificates == 0;
        let (library, token) = self.places().next()?;
        self.tokens().all(is_empty).then(|| ObjectError::NoKeyYet {
            token: format!("\"{}\"", token.token_label),
            label: token.token_label.clone(),
            module: library.path_lib.clone(),
        })
    }

    /// The tokens, each with its library.
    fn places(&self) -> impl Iterator<Item = (&LibraryEntry, &TokenEntry)> {
        self.libraries.iter().flat_map(|library| {
            let tokens = library.tokens.iter();
            tokens.map(move |token| (library, token))
        })
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = &TokenEntry> {
        self.places().map(|(_, token)| token)
    }

    /// The token, if there is only one.
    pub(super) fn only_token(&self) -> Option<(&LibraryEntry, &TokenEntry)> {
        let mut places = self.places();
        let only = places.next();
        only.filter(|_| places.next().is_none())
    }

    /// The keys, each with its library and token.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&LibraryEntry, &TokenEntry, &KeyEntry)> {
        self.places().flat_map(|(library, token)| {
            let keys = token.keys.iter();
            keys.map(move |key| (library, token, key))
        })
    }
}
