//! Which keys a signer has: a list in which the newest key stands first.
//!
//! A line names a key by its CKA_ID, by a `pkcs11:` URI, or, for one of which only the public half is here, by the file of
//! that. With `hidden` behind it, the API server verifies by the key and doesn't show it to others.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use config::{Config, KeySelection, PinSource, TrustedLibrary, Uri, without_pin};
use files::ownership::read_trusted;
use messages::error::{Error, Exit};
use messages::help::Help;
use messages::printable::excerpt;
use protocol::Configuration;

/// The longest file with a list of keys, in bytes.
const LONGEST_LIST: u64 = 64 * 1024;
/// The most keys of a list.
const MOST_KEYS: usize = 64;
/// What stands behind a key that isn't shown to others.
const HIDDEN: &str = "hidden";

/// Where the list of keys is, so that it can be read again.
#[derive(Clone, Debug)]
pub enum KeyListSource {
    /// The lines themselves.
    Lines(Vec<String>),
    /// A file with a line for each.
    File(PathBuf),
}

/// Keys, the newest one first, some of which are on one token.
pub(crate) struct KeyList {
    pub(crate) library: TrustedLibrary,
    pub(crate) init_args: Option<std::ffi::CString>,
    pub(crate) pin: PinSource,
    pub(crate) keys: Vec<ListedKey>,
}

/// A key of the list.
#[derive(Clone)]
pub(crate) struct ListedKey {
    /// What the line says of it, for messages.
    pub(crate) name: String,
    pub(crate) place: KeyPlace,
    pub(crate) is_hidden: bool,
}

#[derive(Clone)]
pub(crate) enum KeyPlace {
    Token(KeySelection),
    /// A file with public keys in PEM.
    File(PathBuf),
}

impl Display for KeyListSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines(_) => f.write_str("--key"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl KeyListSource {
    /// Reads the lines, one for each key.
    pub(crate) fn lines(&self) -> Result<Vec<String>, Error> {
        match self {
            Self::Lines(lines) => Ok(lines.clone()),
            Self::File(path) => lines_of(path),
        }
    }
}

fn lines_of(path: &Path) -> Result<Vec<String>, Error> {
    let unreadable = |reason: String| {
        let text = format!("the list of keys {} can't be read: {reason}", path.display());
        Error::new(Exit::Configuration, text).help(
            "name a file of this user's or root's with --keys, with a line for each key, the newest one first",
        )
    };
    let bytes = read_trusted(path, LONGEST_LIST).map_err(|error| unreadable(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    let lines = text.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

impl KeyList {
    /// The keys of these lines. `base` says of the library, the token and the PIN what the lines don't.
    pub(crate) fn parse(lines: &[String], base: &Configuration) -> Result<Self, Error> {
        if lines.len() > MOST_KEYS {
            let text = format!("{} keys are more than {MOST_KEYS}", lines.len());
            return Err(misread(text, "take out those whose tokens have all expired"));
        }
        let mut of_token: Option<Config> = None;
        let mut keys = Vec::new();
        for line in lines {
            let ListLine { key, is_hidden } = ListLine::parse(line)?;
            let place = match key.strip_prefix("file:") {
                Some(path) => KeyPlace::File(file(path)?),
                None => {
                    let config = configured(key, base)?;
                    let selection = config.selection();
                    if let Some(first) = &of_token {
                        check_same_token(first, &config, key)?;
                    }
                    of_token.get_or_insert(config);
                    KeyPlace::Token(selection)
                }
            };
            keys.push(ListedKey { name: shown(key), place, is_hidden });
        }
        let is_signing =
            |key: &ListedKey| !key.is_hidden && matches!(key.place, KeyPlace::Token(_));
        match of_token {
            Some(Config { library, init_args, pin, .. }) if keys.iter().any(is_signing) => {
                Ok(Self { library, init_args, pin, keys })
            }
            _ => Err(misread(
                "no key is named that can sign",
                "name one that is on the token and isn't hidden: by its CKA_ID, such as 2, or as pkcs11:object=NAME",
            )),
        }
    }
}

/// A line of the list.
struct ListLine<'a> {
    /// How the line names its key.
    key: &'a str,
    is_hidden: bool,
}

impl<'a> ListLine<'a> {
    fn parse(line: &'a str) -> Result<Self, Error> {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [key] => Ok(Self { key, is_hidden: false }),
            [key, HIDDEN] => Ok(Self { key, is_hidden: true }),
            _ => Err(misread(
                format!("\"{}\" names no key", shown(line)),
                "write a key's CKA_ID, a pkcs11: URI or file:/path/of/a/public/key.pem, and `hidden` behind it if the \
                 API server is not to show it to others",
            )),
        }
    }
}

fn file(path: &str) -> Result<PathBuf, Error> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(PathBuf::from(path));
    }
    let text = format!("file:{} holds no absolute path", excerpt(path));
    Err(misread(
        text,
        "write the whole path of a public key in PEM: file:/etc/kubernetes/pki/sa.pub",
    ))
}

/// The configuration of the key on the token.
fn configured(key: &str, base: &Configuration) -> Result<Config, Error> {
    let mut map: Configuration = base.pairs().collect();
    if is_uri(key) {
        check_pin(key)?;
        map.set("uri", key);
    } else {
        map.set("objectId", key);
    }
    Config::from_map(&mut map)
}

fn is_uri(key: &str) -> bool {
    const SCHEME: &str = "pkcs11:";
    key.get(..SCHEME.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SCHEME))
}

/// A key, or a line, as it is shown: without a PIN and its source.
fn shown(key: &str) -> String {
    if is_uri(key) { excerpt(without_pin(key).trim_end_matches('?')) } else { excerpt(key) }
}

/// Checks what a URI says of the PIN: the list is no place for one, and nobody may be there to type it.
fn check_pin(uri: &str) -> Result<(), Error> {
    const HELP: &str = "take it out, and set --pin-source to file:/path, as systemd has credentials, or to env:NAME";
    let parsed = Uri::parse(uri)?;
    if parsed.get("pin-value").is_some() {
        return Err(misread(format!("{} has a PIN in it (pin-value)", shown(uri)), HELP));
    }
    let source = parsed.get("pin-source").map(PinSource::parse).transpose()?;
    match source {
        None | Some(PinSource::File(_)) => Ok(()),
        Some(_) => Err(misread(format!("the pin-source of {} is no file", shown(uri)), HELP)),
    }
}

fn check_same_token(first: &Config, other: &Config, key: &str) -> Result<(), Error> {
    let is_same = first.library.path() == other.library.path()
        && first.init_args == other.init_args
        && first.token == other.token;
    if is_same {
        return Ok(());
    }
    let text = format!("{} is on another token than the first key", shown(key));
    Err(misread(
        text,
        "name keys of one token; of a key on another one, list the public key: file:/path/of/it.pem",
    ))
}

fn misread(text: impl Into<String>, help: impl Into<Help>) -> Error {
    Error::new(Exit::Configuration, text).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> Result<KeyList, String> {
        let base = [("pathLib", "/no/such.so"), ("tokenLabel", "sa")].into_iter().collect();
        let lines: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        KeyList::parse(&lines, &base).map_err(|error| error.to_string())
    }

    #[test]
    fn keys_are_named_by_id_uri_and_file() {
        let list = parse(&["pkcs11:object=sa-2027", "2", "file:/etc/sa.pub", "3  hidden"]).unwrap();
        let places: Vec<_> = list
            .keys
            .iter()
            .map(|key| (matches!(key.place, KeyPlace::Token(_)), key.is_hidden))
            .collect();
        assert_eq!(places, [(true, false), (true, false), (false, false), (true, true)]);
    }

    #[test]
    fn a_pin_belongs_into_no_list_and_is_not_shown() {
        for line in ["pkcs11:id=%02?pin-value=1234", "PKCS11:id=%02?pin-value=1234&x-a=1"] {
            let error = parse(&[line]).err().unwrap();
            assert!(error.ends_with("has a PIN in it (pin-value)"), "{error}");
            assert!(!error.contains("1234"), "{error}");
        }
        let error = parse(&["pkcs11:id=%02?pin-value=1234 shown"]).err().unwrap();
        assert!(error.ends_with("names no key") && !error.contains("1234"), "{error}");
        for source in ["prompt", "askpass", "stdin", "env:PIN"] {
            let error = parse(&[&format!("pkcs11:id=%02?pin-source={source}")]).err().unwrap();
            assert_eq!(error, "the pin-source of pkcs11:id=%02 is no file");
        }
        let list = parse(&["pkcs11:id=%02?pin-source=file:/run/pin"]).unwrap();
        assert_eq!(list.keys[0].name, "pkcs11:id=%02");
    }

    #[test]
    fn a_list_that_can_not_be_meant_is_refused() {
        for (lines, what) in [
            (&[][..], "no key is named that can sign"),
            (&["file:/etc/sa.pub"], "no key is named that can sign"),
            (&["2 hidden"], "no key is named that can sign"),
            (&["2 shown"], "\"2 shown\" names no key"),
            (&["2", "file:sa.pub"], "file:sa.pub holds no absolute path"),
            (&["2", "pkcs11:serial=77;id=%03"], "is on another token than the first key"),
            (&["2", "pkcs11:token=other;id=%03"], "uri has another token than tokenLabel"),
            (&["two"], "objectId \"two\" is neither"),
        ] {
            let error = parse(lines).err().unwrap();
            assert!(error.contains(what), "{lines:?}: {error}");
        }
    }
}
