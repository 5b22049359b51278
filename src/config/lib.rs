//! The configuration map with types: which library, which token, which object, and where the PIN comes from.
//!
//! An error is about the first value that can't be used. It quotes that value, unless it can be a PIN.

#![forbid(unsafe_code)]

mod keep;
mod library;
mod object_id;
pub mod pin;
mod pin_source;
mod selector;
mod uri;

#[cfg(test)]
mod properties;

use std::ffi::CString;
use std::fmt::Display;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use keep::{Keep, duration};
pub use library::TrustedLibrary;
pub use object_id::ObjectId;
pub use pin_source::PinSource;
pub use selector::{ObjectSelector, TokenName, TokenSelector};
pub use uri::{Uri, without_object, without_pin};

use self::library::Allowed;
use self::uri::Setting;
use messages::error::{Error, Exit};
use messages::help::{Help, HelpPart, command};
use messages::printable::{excerpt, shell_word};
use protocol::Configuration;

/// The keys of the configuration that are options of commands, too, and those options. The keys that aren't about the
/// key come first.
pub const OPTIONS: [(&str, &str); 11] = [
    ("keep", "--keep"),
    ("pathLib", "--module"),
    ("initArgs", "--init-args"),
    ("slotId", "--slot-id"),
    ("tokenLabel", "--token-label"),
    ("tokenSerial", "--token-serial"),
    ("objectId", "--object-id"),
    ("objectLabel", "--object-label"),
    ("uri", "--uri"),
    ("certificateFile", "--certificate-file"),
    ("pinSource", "--pin-source"),
];

/// A configuration that is complete, and in which nothing is malformed.
pub struct Config {
    pub library: TrustedLibrary,
    pub init_args: Option<CString>,
    pub token: TokenSelector,
    pub object: ObjectSelector,
    /// The absolute path of the file with the certificate.
    pub certificate_file: Option<PathBuf>,
    pub pin: PinSource,
    pub keep: Option<Keep>,
}

/// Which key of a library is meant, and where its certificate is.
#[derive(Clone, Deserialize, Serialize)]
pub struct KeySelection {
    token: TokenSelector,
    object: ObjectSelector,
    certificate_file: Option<PathBuf>,
}

impl Config {
    /// The configuration for a key of a library that was checked before. Its PIN comes from a prompt.
    pub fn of_key(
        library: TrustedLibrary,
        init_args: Option<CString>,
        selection: KeySelection,
    ) -> Self {
        let KeySelection { token, object, certificate_file } = selection;
        Self {
            library,
            init_args,
            token,
            object,
            certificate_file,
            pin: PinSource::Prompt,
            keep: None,
        }
    }

    /// The key of the library that the configuration names.
    pub fn selection(&self) -> KeySelection {
        KeySelection {
            token: self.token.clone(),
            object: self.object.clone(),
            certificate_file: self.certificate_file.clone(),
        }
    }

    /// Takes the values of the keys that this program knows out of `map`, and ignores all other keys. An error if the
    /// library, the token or the object is not named, and for a value that can't be used.
    pub fn from_map(map: &mut Configuration) -> Result<Self, Error> {
        let config = Self::of_token(map)?;
        if config.object.is_given() {
            return Ok(config);
        }
        Err(misconfigured(
            "no object is named: objectId and objectLabel are both missing",
            Help::from("set objectId or objectLabel; ")
                .and(command("list").and(HelpPart::Token).and(" --login"))
                .and(" shows them"),
        ))
    }

    /// Does the same as [`Self::from_map`] for a call in which the key follows from something else, so that no object
    /// has to be named.
    pub fn of_token(map: &mut Configuration) -> Result<Self, Error> {
        let Filter { library, init_args, token, object } = Filter::from_map(map)?;
        let library = library.ok_or_else(|| {
            misconfigured(
                "pathLib is missing",
                "set pathLib (--module) to the path of the token's library, such as /usr/lib/opensc-pkcs11.so",
            )
        })?;
        if !token.is_given() {
            return Err(misconfigured(
                "no token is named: slotId, tokenLabel and tokenSerial are all missing",
                Help::from("set tokenLabel, tokenSerial or slotId; ")
                    .and(
                        command("list --module ")
                            .and(shell_word(&library.path().to_string_lossy())),
                    )
                    .and(" shows them"),
            ));
        }
        Ok(Self {
            library,
            init_args,
            token,
            object,
            certificate_file: take(map, "certificateFile", certificate_file)?,
            pin: PinSource::take(map)?.unwrap_or_default(),
            keep: take(map, "keep", kept)?,
        })
    }
}

/// Which library, tokens and objects are meant. What isn't given doesn't matter.
pub struct Filter {
    pub library: Option<TrustedLibrary>,
    pub init_args: Option<CString>,
    pub token: TokenSelector,
    pub object: ObjectSelector,
}

impl Filter {
    /// Takes the values of the keys that this program knows out of `map`, and ignores all other keys.
    pub fn from_map(map: &mut Configuration) -> Result<Self, Error> {
        let uri = unfold(map)?;
        let text = |value: &str| Ok(value.to_owned());
        let of_uri = |attribute| uri.get(attribute).map(str::to_owned);
        let library = take(map, "pathLib", TrustedLibrary::check)?;
        if library.is_none() {
            // An error in the list is reported here once, and not for each library that is found.
            Allowed::read()?;
        }
        Ok(Self {
            library,
            init_args: take(map, "initArgs", init_args)?,
            token: TokenSelector {
                slot: take(map, "slotId", selector::slot)?,
                label: take(map, "tokenLabel", text)?.or_else(|| of_uri("token")),
                serial: take(map, "tokenSerial", text)?.or_else(|| of_uri("serial")),
                manufacturer: of_uri("manufacturer"),
                model: of_uri("model"),
            },
            object: ObjectSelector {
                id: take(map, "objectId", ObjectId::parse)?,
                label: take(map, "objectLabel", text)?,
            },
        })
    }
}

/// Puts the attributes of the URI, if there is one, under the keys that stand for them.
fn unfold(map: &mut Configuration) -> Result<Uri, Error> {
    let uri = take(map, "uri", Uri::parse)?.unwrap_or_default();
    for Setting { attribute, key, value } in uri.settings() {
        if map.value(key).is_some_and(|given| given != value) {
            return Err(misconfigured(
                format!("uri has another {attribute} than {key}"),
                format!("take {attribute} out of uri, or leave {key} out"),
            ));
        }
        // A key can't have an empty value.
        if !value.is_empty() {
            map.set(key, value);
        }
    }
    Ok(uri)
}

fn take<T>(
    map: &mut Configuration,
    key: &str,
    parse: impl FnOnce(&str) -> Result<T, Error>,
) -> Result<Option<T>, Error> {
    match map.take(key) {
        None => Ok(None),
        Some(value) if value.is_empty() => {
            let help = format!("give {key} a value, or leave it out");
            Err(misconfigured(format!("{key} is empty"), help))
        }
        Some(value) => parse(&value).map(Some),
    }
}

/// Parses the value of `initArgs`: the text for C_Initialize (CK_C_INITIALIZE_ARGS, pReserved), for a library without a
/// configuration file of its own, such as NSS. A library that it names is refused: it may come with a stranger's
/// kubeconfig, and only `pathLib` is checked.
fn init_args(value: &str) -> Result<CString, Error> {
    /// The longest parameters of a library, in bytes.
    const LONGEST: usize = 4096;
    if value.to_ascii_lowercase().contains("library=") {
        return Err(misconfigured(
            "initArgs names a library",
            "take library= out of initArgs: pathLib says which library is loaded",
        ));
    }
    let is_line = value.len() <= LONGEST && !value.chars().any(char::is_control);
    CString::new(value).ok().filter(|_| is_line).ok_or_else(|| {
        misconfigured(
            "initArgs is too long, or not one line",
            "write into initArgs what the library wants, as in configDir='sql:/home/jane/nssdb' flags=readOnly",
        )
    })
}

/// The keys and values of a configuration that name the key and the PIN's source. A PIN is left out.
pub fn key_selection(map: &Configuration) -> Vec<(String, String)> {
    let is_wanted = |key| key != "keep" && OPTIONS.iter().any(|(known, _)| *known == key);
    let pairs = map.pairs().filter(|(key, _)| is_wanted(*key));
    let value = |key, value: &str| if key == "uri" { without_pin(value) } else { value.to_owned() };
    pairs.map(|(key, given)| (key.to_owned(), value(key, given))).collect()
}

fn kept(value: &str) -> Result<Keep, Error> {
    value.parse().map_err(|error| {
        let help = "set keep to terminal or to a duration such as 15m, or leave it out";
        misconfigured(format!("keep {}: {error}", quoted(value)), help)
    })
}

fn certificate_file(value: &str) -> Result<PathBuf, Error> {
    absolute_path(value).ok_or_else(|| {
        let what = format!("certificateFile {} is not an absolute path", quoted(value));
        let help = "write the file's whole path into certificateFile; ~ is not expanded";
        misconfigured(what, help)
    })
}

fn absolute_path(value: &str) -> Option<PathBuf> {
    (value.starts_with('/') && !value.contains('\0')).then(|| PathBuf::from(value))
}

/// The error for a value that can't be used. It says what is wrong, including the key, and what to write instead.
fn misconfigured(what: impl Display, help: impl Into<Help>) -> Error {
    Error::new(Exit::Configuration, format!("configuration: {what}")).help(help)
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", excerpt(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a configuration, and what to do about it.
    fn error(pairs: &[(&str, &str)]) -> [String; 2] {
        let error = Config::from_map(&mut pairs.iter().copied().collect()).err().unwrap();
        let text = error.to_string();
        [text.strip_prefix("configuration: ").unwrap().to_owned(), error.remedy().text]
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let mut map = Configuration::from_iter([
            ("pathLib", "/no/such/library.so"),
            ("initArgs", "configDir='sql:/db'"),
            ("slotId", "31"),
            ("tokenLabel", "prod"),
            ("tokenSerial", "5d9c2ea1"),
            ("objectId", "2"),
            ("objectLabel", "jane"),
            ("certificateFile", "/etc/jane.pem"),
            ("pin", "123456"),
            ("pinSource", "stdin"),
            ("pathExec", "/usr/bin/pkcs11-external-signer"),
        ]);
        let config = Config::from_map(&mut map).ok().unwrap();
        assert_eq!(config.library.path().to_str(), Some("/no/such/library.so"));
        assert_eq!(config.init_args.as_deref(), Some(c"configDir='sql:/db'"));
        assert_eq!(config.token.slot, Some(31));
        assert_eq!(
            config.token.to_string(),
            "slotId 31, tokenLabel \"prod\" and tokenSerial \"5d9c2ea1\""
        );
        assert_eq!(config.object.to_string(), "objectId \"2\" and objectLabel \"jane\"");
        assert_eq!(config.certificate_file, Some(PathBuf::from("/etc/jane.pem")));
        assert!(matches!(config.pin, PinSource::Configuration(pin) if pin.expose() == "123456"));
        assert!(map.take("pin").is_none());
        assert!(map.take("pathExec").is_some());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_key() {
        let good = [("pathLib", "/no/such.so"), ("slotId", "1"), ("objectId", "1")];
        for (key, value, what) in [
            ("pathLib", "library.so", "pathLib \"library.so\" is not an absolute path"),
            ("slotId", "five", "slotId \"five\" is not a decimal number"),
            ("slotId", "0x5", "slotId \"0x5\" is not a decimal number"),
            ("slotId", "", "slotId is empty"),
            ("tokenLabel", "", "tokenLabel is empty"),
            ("objectId", "x", "objectId \"x\" is neither a byte in decimal nor hexadecimal"),
            (
                "certificateFile",
                "~/jane.pem",
                "certificateFile \"~/jane.pem\" is not an absolute path",
            ),
            ("pin", "12\x0034", "pin holds a line break"),
            ("pinSource", "keyring", "pinSource must be"),
            ("keep", "x", "keep \"x\": it must be"),
            ("initArgs", "Library='/home/jane/evil.so'", "initArgs names a library"),
            ("initArgs", "a\nb", "initArgs is too long, or not one line"),
            ("initArgs", &"x".repeat(4097), "initArgs is too long, or not one line"),
            ("uri", "pkcs11:id=%1", "uri: id has a % without two digits"),
        ] {
            let [found, help] = error(&[&good[..], &[(key, value)]].concat());
            assert!(found.starts_with(what), "{key}: {found}");
            assert!(help.contains(key), "{key}: {help}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let [library, token] = [("pathLib", "/no/such.so"), ("slotId", "1")];
        for (pairs, what) in [
            (&[][..], "pathLib is missing"),
            (&[library], "no token is named: slotId, tokenLabel and tokenSerial are all missing"),
            (&[library, token], "no object is named: objectId and objectLabel are both missing"),
        ] {
            assert_eq!(error(pairs)[0], what);
        }
    }

    #[test]
    fn a_uri_and_a_key_that_disagree_are_named_and_not_shown() {
        let uri = "pkcs11:token=a;slot-id=1;id=%01;serial=s?module-path=/a.so&pin-value=4711&pin-source=prompt";
        let same = [("uri", uri), ("tokenSerial", "s"), ("objectId", "1"), ("pin", "4711")];
        for (key, value, attribute) in [
            ("pathLib", "/b.so", "module-path"),
            ("slotId", "2", "slot-id"),
            ("tokenLabel", "b", "token"),
            ("tokenSerial", "t", "serial"),
            ("objectId", "0x01", "id"),
            ("pinSource", "stdin", "pin-source"),
            ("pin", "1147", "pin-value"),
        ] {
            let [what, help] = error(&[&same[..], &[(key, value)]].concat());
            assert_eq!(what, format!("uri has another {attribute} than {key}"));
            assert_eq!(help, format!("take {attribute} out of uri, or leave {key} out"));
        }
    }

    #[test]
    fn long_values_are_cut() {
        let path = "x".repeat(1000);
        let pairs = [("pathLib", path.as_str()), ("slotId", "1"), ("objectId", "1")];
        assert_eq!(
            error(&pairs)[0],
            format!("pathLib \"{}…\" is not an absolute path", "x".repeat(60))
        );
    }
}
