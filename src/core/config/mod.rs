//! The configuration map, made typed: which library, which token, which object, whose PIN.
//!
//! All problems are reported at once. A problem quotes the value it is about, unless that can be a
//! PIN.

#![forbid(unsafe_code)]

mod allowed;
mod error;
mod init_args;
mod keep;
mod library;
mod object_id;
mod pin_source;
mod reader;
mod selector;
mod token_name;
mod trust;
mod uri;

#[cfg(test)]
mod properties;

use std::path::PathBuf;

pub use error::{ConfigError, Problem};
pub use init_args::InitArgs;
pub use keep::{Keep, KeepError, duration, long_duration};
pub use library::TrustedLibrary;
pub use object_id::ObjectId;
pub use pin_source::PinSource;
pub use selector::{ObjectSelector, TokenSelector};
pub use token_name::TokenName;
pub use uri::{Uri, without_object, without_pin};

use self::allowed::Allowed;
use self::reader::Reader;
use crate::error::{PROGRAM, Setting, remedy};
use crate::printable::excerpt;
use crate::protocol::Configuration;

/// A configuration in which nothing is missing and nothing malformed.
pub struct Config {
    pub library: TrustedLibrary,
    pub init_args: Option<InitArgs>,
    pub token: TokenSelector,
    pub object: ObjectSelector,
    /// Absolute.
    pub certificate_file: Option<PathBuf>,
    pub pin: PinSource,
    /// How long the key stays open in the tunnel process.
    pub keep: Option<Keep>,
}

impl Config {
    /// Takes the values of the keys it knows out of `map` and ignores all other keys.
    pub fn from_map(map: &mut Configuration) -> Result<Self, ConfigError> {
        Self::read(map, true)
    }

    /// The same where the key follows from something else, so that no object has to be named.
    pub fn of_token(map: &mut Configuration) -> Result<Self, ConfigError> {
        Self::read(map, false)
    }

    fn read(map: &mut Configuration, needs_object: bool) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(map);
        if !reader.has(&["pathLib"]) {
            reader.missing(
                "pathLib is missing",
                remedy!("set ", Setting("pathLib"), " to the absolute path of the token's PKCS#11 library, such as /usr/lib/x86_64-linux-gnu/opensc-pkcs11.so"),
            );
        }
        let library = reader.read("pathLib", TrustedLibrary::check);
        let init_args = reader.read("initArgs", InitArgs::parse);
        let names_token = reader.has_value(&["slotId", "tokenLabel", "tokenSerial"]);
        let token = reader.token();
        if !names_token && !token.is_given() {
            reader.missing(
                "no token is named: slotId, tokenLabel and tokenSerial are all missing",
                remedy!(
                    "set ",
                    Setting("tokenLabel"),
                    ", ",
                    Setting("tokenSerial"),
                    " or ",
                    Setting("slotId"),
                    "; ",
                    PROGRAM,
                    " list shows them"
                ),
            );
        }
        let names_object = reader.has_value(&["objectId", "objectLabel"]);
        let object = reader.object();
        if needs_object && !names_object {
            reader.missing(
                "no object is named: objectId and objectLabel are both missing",
                remedy!(
                    "set ",
                    Setting("objectId"),
                    " or ",
                    Setting("objectLabel"),
                    "; ",
                    PROGRAM,
                    " list shows them"
                ),
            );
        }
        let certificate_file = reader.read("certificateFile", certificate_file);
        let pin = reader.pin().unwrap_or(PinSource::Prompt);
        let keep = reader.read("keep", kept);
        reader.finish(library.map(|library| Self {
            library,
            init_args,
            token,
            object,
            certificate_file,
            pin,
            keep,
        }))
    }
}

/// Which library, tokens and objects are meant: the part of a configuration to choose by. What isn't
/// given doesn't matter.
pub struct Filter {
    pub library: Option<TrustedLibrary>,
    pub init_args: Option<InitArgs>,
    pub token: TokenSelector,
    pub object: ObjectSelector,
}

impl Filter {
    /// Takes the values of the keys it knows out of `map` and ignores all other keys.
    pub fn from_map(map: &mut Configuration) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(map);
        if !reader.has_value(&["pathLib"])
            && let Err(problem) = Allowed::read()
        {
            // Reported once, and not for each library that is found.
            reader.problems.push(problem);
        }
        let filter = Self {
            library: reader.read("pathLib", TrustedLibrary::check),
            init_args: reader.read("initArgs", InitArgs::parse),
            token: reader.token(),
            object: reader.object(),
        };
        reader.finish(Some(filter))
    }
}

/// What a configuration says of the key and of its PIN's source, without a PIN.
pub fn key_selection(map: &Configuration) -> Vec<(String, String)> {
    const KEYS: [&str; 10] = [
        "certificateFile",
        "initArgs",
        "objectId",
        "objectLabel",
        "pathLib",
        "pinSource",
        "slotId",
        "tokenLabel",
        "tokenSerial",
        "uri",
    ];
    let pairs = map.pairs().filter(|(key, _)| KEYS.contains(key));
    pairs
        .map(|(key, value)| match key {
            "uri" => (key.to_owned(), without_pin(value)),
            _ => (key.to_owned(), value.to_owned()),
        })
        .collect()
}

fn kept(value: &str) -> Result<Keep, Problem> {
    value.parse().map_err(|error| {
        Problem::new(
            format!("keep {}: {error}", quoted(value)),
            remedy!(
                "set ",
                Setting("keep"),
                " to terminal or to a duration such as 15m, or leave it out"
            ),
        )
    })
}

fn certificate_file(value: &str) -> Result<PathBuf, Problem> {
    absolute_path(value).ok_or_else(|| {
        Problem::new(
            format!("certificateFile {} is not an absolute path", quoted(value)),
            remedy!(
                "write the file's whole path into ",
                Setting("certificateFile"),
                "; ~ is not expanded"
            ),
        )
    })
}

fn absolute_path(value: &str) -> Option<PathBuf> {
    (value.starts_with('/') && !value.contains('\0')).then(|| PathBuf::from(value))
}

/// What follows the mark of hexadecimal digits, if it is there.
fn after_0x(value: &str) -> Option<&str> {
    value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"))
}

/// The beginning of a value, as a message shows it.
fn quoted(value: &str) -> String {
    format!("\"{}\"", excerpt(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a configuration, and the remedies.
    fn problems(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut map = pairs.iter().copied().collect();
        let error = Config::from_map(&mut map).err().unwrap();
        error
            .problems
            .into_iter()
            .map(|problem| (problem.what, problem.remedy.to_string()))
            .collect()
    }

    fn whats(pairs: &[(&str, &str)]) -> Vec<String> {
        problems(pairs).into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let mut map = Configuration::from_iter([
            ("pathLib", "/no/such/library.so"),
            ("initArgs", "configDir='sql:/db'"),
            ("slotId", "0x1f"),
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
        let init_args = config.init_args.unwrap();
        assert_eq!(init_args.as_c_str(), c"configDir='sql:/db'");
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
    fn the_least_configuration_is_enough() {
        let mut map = Configuration::from_iter([
            ("pathLib", "/no/such/library.so"),
            ("tokenLabel", "prod"),
            ("objectLabel", "jane"),
        ]);
        let config = Config::from_map(&mut map).ok().unwrap();
        assert_eq!(config.token.to_string(), "tokenLabel \"prod\"");
        assert_eq!(config.object.to_string(), "objectLabel \"jane\"");
        assert!(matches!(config.pin, PinSource::Prompt));
    }

    #[test]
    fn an_empty_configuration_lacks_three_things() {
        assert_eq!(
            whats(&[]),
            [
                "pathLib is missing",
                "no token is named: slotId, tokenLabel and tokenSerial are all missing",
                "no object is named: objectId and objectLabel are both missing",
            ]
        );
    }

    #[test]
    fn every_problem_is_reported_with_its_key_in_the_remedy() {
        let found = problems(&[
            ("pathLib", "library.so"),
            ("slotId", "five"),
            ("tokenLabel", ""),
            ("objectId", "256"),
            ("certificateFile", "~/jane.pem"),
            ("pin", "12\x0034"),
            ("pinSource", "keyring"),
        ]);
        let keys =
            ["pathLib", "slotId", "tokenLabel", "objectId", "certificateFile", "pin", "pinSource"];
        assert_eq!(found.len(), keys.len());
        for ((what, remedy), key) in found.iter().zip(keys) {
            assert!(what.starts_with(&format!("{key} ")), "{key}: {what}");
            assert!(remedy.contains(key), "{key}: {remedy}");
        }
    }

    #[test]
    fn an_empty_selector_names_nothing() {
        let pairs = [("pathLib", "/no/such.so"), ("slotId", ""), ("objectId", "x")];
        assert_eq!(
            whats(&pairs),
            [
                "slotId is empty",
                "no token is named: slotId, tokenLabel and tokenSerial are all missing",
                "objectId \"x\" is neither decimal nor hexadecimal",
            ]
        );
    }

    #[test]
    fn a_uri_says_what_the_other_keys_say() {
        let mut map = Configuration::from_iter([
            (
                "uri",
                "pkcs11:token=prod;model=v2;slot-id=7;id=%01%02?module-path=/no/such.so&pin-value=4711",
            ),
            ("slotId", "0x7"),
            ("objectId", "01:02"),
        ]);
        let config = Config::from_map(&mut map).ok().unwrap();
        assert_eq!(config.token.to_string(), "slotId 7, tokenLabel \"prod\" and model \"v2\"");
        assert_eq!(config.object.to_string(), "objectId \"0x0102\"");
        assert_eq!(config.library.path().to_str(), Some("/no/such.so"));
        assert!(matches!(config.pin, PinSource::Configuration(pin) if pin.expose() == "4711"));
    }

    #[test]
    fn what_a_uri_may_have_said_is_not_missing() {
        let uri = "pkcs11:token=prod;id=%1?module-path=/no/such.so";
        assert_eq!(
            whats(&[("uri", uri), ("slotId", "x")]),
            ["uri: id has a % without two digits", "slotId \"x\" is not a number",]
        );
        assert_eq!(
            whats(&[("uri", "pkcs11:token=prod")]),
            ["pathLib is missing", "no object is named: objectId and objectLabel are both missing",]
        );
    }

    #[test]
    fn a_uri_and_a_key_that_disagree_are_both_named() {
        let uri = "pkcs11:token=a;slot-id=1;id=%01;serial=s\
                   ?module-path=/a.so&pin-value=4711&pin-source=prompt";
        let found = whats(&[
            ("uri", uri),
            ("pathLib", "/b.so"),
            ("slotId", "2"),
            ("tokenLabel", "b"),
            ("tokenSerial", "s"),
            ("objectId", "2"),
            ("pin", "1147"),
            ("pinSource", "stdin"),
        ]);
        assert_eq!(
            found,
            [
                "uri has module-path \"/a.so\", but pathLib is \"/b.so\"",
                "uri has slot-id \"1\", but slotId is \"2\"",
                "uri has token \"a\", but tokenLabel is \"b\"",
                "uri has id \"1\", but objectId is \"2\"",
                "uri has another pin-source than pinSource",
                "uri has another pin-value than pin",
            ]
        );
    }

    #[test]
    fn long_values_are_cut() {
        let path = "x".repeat(1000);
        let pairs = [("pathLib", path.as_str()), ("slotId", "1"), ("objectId", "1")];
        assert_eq!(
            whats(&pairs),
            [format!("pathLib \"{}…\" is not an absolute path", "x".repeat(60))]
        );
    }
}
