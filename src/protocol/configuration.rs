//! The configuration in a request, which is the kubeconfig's `auth-provider.config`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::malformed;
use super::members::Members;
use messages::error::Error;
use messages::printable::excerpt;

/// The values of a configuration by their keys. One of the values can be a PIN, so that none can be printed.
#[derive(Clone, Default)]
pub struct Configuration(BTreeMap<String, String>);

impl Configuration {
    /// Takes the value of this key out of the configuration.
    pub fn take(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// The value of this key, which stays.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Gives the key this value, in the place of a value that it has.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.into(), value.into());
    }

    /// Keys and values, in the order of the keys.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.0.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Parses a JSON object. Errors name the key, and never the value.
    pub(super) fn decode(object: &RawValue) -> Result<Self, Error> {
        let Members(members) = serde_json::from_str(object.get())
            .map_err(|_| malformed("configuration", "an object of strings, each key once"))?;
        let values = members.into_iter().map(|(key, value)| {
            let value = serde_json::from_str(value.get())
                .map_err(|_| malformed(&format!("configuration.{}", excerpt(&key)), "a string"))?;
            Ok((key, value))
        });
        values.collect::<Result<_, _>>().map(Self)
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Configuration {
    /// If a key has several values, the last one stays.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let owned = |(key, value): (&str, &str)| (key.into(), value.into());
        Self(pairs.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(object: &str) -> Result<Configuration, String> {
        let raw: &RawValue = serde_json::from_str(object).unwrap();
        Configuration::decode(raw).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_is_taken_once() {
        let mut configuration = decode(r#"{"slotId":"5","unknown":"\u0026\""}"#).ok().unwrap();
        assert_eq!(configuration.take("unknown").unwrap().as_str(), "&\"");
        assert_eq!(configuration.take("slotId").unwrap().as_str(), "5");
        assert!(configuration.take("slotId").is_none());
    }

    #[test]
    fn a_faulty_key_is_named_and_no_value() {
        const NO_OBJECT: &str =
            "malformed field configuration: expected an object of strings, each key once";
        for (object, error) in [
            (r#"["1234"]"#, NO_OBJECT),
            ("null", NO_OBJECT),
            (r#"{"pin":1234}"#, "malformed field configuration.pin: expected a string"),
            (r#"{"pin":"\ud800"}"#, "malformed field configuration.pin: expected a string"),
            (
                r#"{"pin":["1234"],"slotId":5,"a":"b"}"#,
                "malformed field configuration.pin: expected a string",
            ),
            (r#"{"slotId":"5","pin":"1234","\u0073lotId":"6"}"#, NO_OBJECT),
        ] {
            assert_eq!(decode(object).err().unwrap(), error, "{object}");
        }
    }
}
