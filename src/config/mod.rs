//! The configuration map, made typed: which library, which token, which object, whose PIN.
//!
//! Everything that is wrong is reported at once, so that nobody mends a kubeconfig run by run. A
//! problem quotes the value it is about, except where that can be a PIN.

#![forbid(unsafe_code)]

mod allowed;
mod error;
mod filter;
mod init_args;
mod library;
mod object_id;
mod pin_source;
mod selector;
mod token_name;
mod uri;

#[cfg(test)]
mod properties;

use std::path::PathBuf;

pub use error::{ConfigError, Problem};
pub use filter::Filter;
pub use init_args::InitArgs;
pub use library::TrustedLibrary;
pub use object_id::ObjectId;
pub use pin_source::PinSource;
pub use selector::{ObjectSelector, TokenSelector};
pub use token_name::TokenName;
pub use uri::{Uri, without_object};

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
}

impl Config {
    /// Takes the values of the keys it knows out of `map`; all other keys pass.
    pub fn from_map(map: &mut Configuration) -> Result<Self, ConfigError> {
        let mut reader = Reader::new(map);
        let library = reader.library();
        let init_args = reader.read("initArgs", InitArgs::parse).value();
        let token = TokenSelector::read(&mut reader);
        let object = ObjectSelector::read(&mut reader);
        let certificate_file = reader.read("certificateFile", certificate_file).value();
        let pin = PinSource::read(&mut reader);
        match (library, reader.problems) {
            (Some(library), problems) if problems.is_empty() => Ok(Self {
                library,
                init_args,
                token,
                object,
                certificate_file,
                pin,
            }),
            (_, problems) => Err(ConfigError { problems }),
        }
    }
}

/// The map while it is read, with the problems found so far.
struct Reader<'a> {
    map: &'a mut Configuration,
    problems: Vec<Problem>,
    /// `uri` is there and can't be read: what else is missing it may have said.
    is_uri_refused: bool,
    /// What only `uri` says.
    manufacturer: Option<String>,
    model: Option<String>,
}

/// What came of a key.
enum Setting<T> {
    Absent,
    /// There, with a problem that has been noted.
    Refused,
    Read(T),
}

impl<T> Setting<T> {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    fn value(self) -> Option<T> {
        match self {
            Self::Read(value) => Some(value),
            Self::Absent | Self::Refused => None,
        }
    }
}

impl<'a> Reader<'a> {
    fn new(map: &'a mut Configuration) -> Self {
        let mut reader = Self {
            map,
            problems: Vec::new(),
            is_uri_refused: false,
            manufacturer: None,
            model: None,
        };
        reader.unfold_uri();
        reader
    }

    /// What was read, unless there were problems.
    fn finish<T>(self, read: T) -> Result<T, ConfigError> {
        match self.problems {
            problems if problems.is_empty() => Ok(read),
            problems => Err(ConfigError { problems }),
        }
    }

    /// An optional key. One that is there but empty is a problem and otherwise counts as absent.
    fn read<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T, Problem>) -> Setting<T> {
        self.read_owned(key, |value| parse(&value))
    }

    fn read_owned<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(String) -> Result<T, Problem>,
    ) -> Setting<T> {
        let Some(value) = self.map.take(key) else {
            return Setting::Absent;
        };
        if value.is_empty() {
            let remedy = format!("leave {key} out, or give it a value");
            self.problems
                .push(Problem::new(format!("{key} is empty"), remedy));
            return Setting::Absent;
        }
        match parse(value) {
            Ok(value) => Setting::Read(value),
            Err(problem) => {
                self.problems.push(problem);
                Setting::Refused
            }
        }
    }

    fn library(&mut self) -> Option<TrustedLibrary> {
        let value = self.map.take("pathLib");
        let checked = match value.as_deref() {
            None => {
                self.lacks(library::missing("pathLib is missing"));
                return None;
            }
            Some("") => Err(library::missing("pathLib is empty")),
            Some(path) => TrustedLibrary::check(path),
        };
        checked.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Nothing says what has to be said.
    fn lacks(&mut self, problem: Problem) {
        if !self.is_uri_refused {
            self.problems.push(problem);
        }
    }
}

fn certificate_file(value: &str) -> Result<PathBuf, Problem> {
    absolute_path(value).ok_or_else(|| {
        Problem::new(
            format!("certificateFile {} is not an absolute path", quoted(value)),
            "write the file's whole path into certificateFile; ~ is not expanded",
        )
    })
}

fn absolute_path(value: &str) -> Option<PathBuf> {
    (value.starts_with('/') && !value.contains('\0')).then(|| PathBuf::from(value))
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
            .map(|problem| (problem.what, problem.remedy))
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
        assert_eq!(
            config.object.to_string(),
            "objectId \"2\" and objectLabel \"jane\""
        );
        assert_eq!(
            config.certificate_file,
            Some(PathBuf::from("/etc/jane.pem"))
        );
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
        let keys = [
            "pathLib",
            "slotId",
            "tokenLabel",
            "objectId",
            "certificateFile",
            "pin",
            "pinSource",
        ];
        assert_eq!(found.len(), keys.len());
        for ((what, remedy), key) in found.iter().zip(keys) {
            assert!(what.starts_with(&format!("{key} ")), "{key}: {what}");
            assert!(remedy.contains(key), "{key}: {remedy}");
        }
    }

    #[test]
    fn an_empty_selector_names_nothing() {
        let pairs = [
            ("pathLib", "/no/such.so"),
            ("slotId", ""),
            ("objectId", "x"),
        ];
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
        assert_eq!(
            config.token.to_string(),
            "slotId 7, tokenLabel \"prod\" and model \"v2\""
        );
        assert_eq!(config.object.to_string(), "objectId \"0x0102\"");
        assert_eq!(config.library.path().to_str(), Some("/no/such.so"));
        assert!(matches!(config.pin, PinSource::Configuration(pin) if pin.expose() == "4711"));
    }

    #[test]
    fn what_a_uri_may_have_said_is_not_missing() {
        let uri = "pkcs11:token=prod;id=%1?module-path=/no/such.so";
        assert_eq!(
            whats(&[("uri", uri), ("slotId", "x")]),
            [
                "uri: id has a % without two digits",
                "slotId \"x\" is not a number",
            ]
        );
        assert_eq!(
            whats(&[("uri", "pkcs11:token=prod")]),
            [
                "pathLib is missing",
                "no object is named: objectId and objectLabel are both missing",
            ]
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
        let pairs = [
            ("pathLib", path.as_str()),
            ("slotId", "1"),
            ("objectId", "1"),
        ];
        assert_eq!(
            whats(&pairs),
            [format!(
                "pathLib \"{}…\" is not an absolute path",
                "x".repeat(60)
            )]
        );
    }
}
