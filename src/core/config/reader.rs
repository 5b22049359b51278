//! The map while it is read.

use super::error::{ConfigError, Problem};
use super::{
    ObjectId, ObjectSelector, PinSource, TokenSelector, Uri, pin_source, quoted, selector,
};
use crate::error::{Help, Setting, remedy};
use crate::protocol::Configuration;

/// The map while it is read, and the problems found so far. `uri` has been replaced by the keys that
/// say the same.
pub(super) struct Reader<'a> {
    map: &'a mut Configuration,
    pub(super) problems: Vec<Problem>,
    /// What only `uri` can say.
    manufacturer: Option<String>,
    model: Option<String>,
    /// `uri` is malformed: it may name what seems to be missing.
    is_uri_refused: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(map: &'a mut Configuration) -> Self {
        let mut reader = Self {
            map,
            problems: Vec::new(),
            manufacturer: None,
            model: None,
            is_uri_refused: false,
        };
        if reader.has(&["uri"]) {
            match reader.read("uri", Uri::parse) {
                Some(uri) => reader.unfold(uri),
                None => reader.is_uri_refused = true,
            }
        }
        reader
    }

    /// Puts what the URI says under the keys that say the same.
    fn unfold(&mut self, uri: Uri) {
        for (attribute, key, value) in uri.settings() {
            match self.map.value(key) {
                None => self.map.set(key, &value),
                Some(given) if is_same(key, given, &value) => {}
                Some(given) => {
                    let problem = contradiction(attribute, &value, key, given);
                    self.problems.push(problem);
                }
            }
        }
        self.manufacturer = uri.manufacturer;
        self.model = uri.model;
    }

    /// Whether the map has one of the keys.
    pub(super) fn has(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.map.has(key))
    }

    /// Whether one of the keys has a value, well-formed or not.
    pub(super) fn has_value(&self, keys: &[&str]) -> bool {
        let value = |key: &&str| self.map.value(key);
        keys.iter().filter_map(value).any(|it| !it.is_empty())
    }

    /// Takes an optional key. `None` for one that is absent, and for one whose problem has been
    /// noted.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, Problem>,
    ) -> Option<T> {
        let value = self.map.take(key)?;
        let parsed = if value.is_empty() {
            Err(Problem::new(
                format!("{key} is empty"),
                remedy!("give ", Setting(key), " a value, or leave it out"),
            ))
        } else {
            parse(&value)
        };
        parsed.map_err(|problem| self.problems.push(problem)).ok()
    }

    pub(super) fn token(&mut self) -> TokenSelector {
        TokenSelector {
            slot: self.read("slotId", selector::slot),
            label: self.read("tokenLabel", text),
            serial: self.read("tokenSerial", text),
            manufacturer: self.manufacturer.take(),
            model: self.model.take(),
        }
    }

    pub(super) fn object(&mut self) -> ObjectSelector {
        ObjectSelector {
            id: self.read("objectId", ObjectId::parse),
            label: self.read("objectLabel", text),
        }
    }

    pub(super) fn pin(&mut self) -> Option<PinSource> {
        let pin = self.read("pin", pin_source::pin);
        let source = self.read("pinSource", PinSource::parse);
        pin.map(PinSource::Configuration).or(source)
    }

    /// Notes that something required is missing.
    pub(super) fn missing(&mut self, what: &str, remedy: impl Into<Help>) {
        if !self.is_uri_refused {
            self.problems.push(Problem::new(what, remedy));
        }
    }

    /// What was read.
    pub(super) fn finish<T>(self, read: Option<T>) -> Result<T, ConfigError> {
        match (read, self.problems) {
            (Some(read), problems) if problems.is_empty() => Ok(read),
            (_, problems) => Err(ConfigError { problems }),
        }
    }
}

fn text(value: &str) -> Result<String, Problem> {
    Ok(value.to_owned())
}

/// Whether a key's value means what the URI says. One that is malformed is a problem of its own.
fn is_same(key: &str, given: &str, of_uri: &str) -> bool {
    match key {
        "objectId" => {
            ObjectId::parse(given).map_or(true, |it| Some(it) == ObjectId::parse(of_uri).ok())
        }
        "slotId" => {
            selector::slot(given).map_or(true, |it| Some(it) == selector::slot(of_uri).ok())
        }
        _ => given == of_uri,
    }
}

fn contradiction(attribute: &str, of_uri: &str, key: &'static str, given: &str) -> Problem {
    Problem::new(
        if key.starts_with("pin") {
            format!("uri has another {attribute} than {key}")
        } else {
            format!("uri has {attribute} {}, but {key} is {}", quoted(of_uri), quoted(given))
        },
        remedy!(
            format!("take {attribute} out of "),
            Setting("uri"),
            ", or leave ",
            Setting(key),
            " out"
        ),
    )
}
