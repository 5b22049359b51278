//! The members of a JSON object that are asked for by name, still in the text they came in.
//!
//! Values are parsed one by one, so a request is refused for its first fault in the protocol's
//! order and by field name. serde_json's own words never get out of here: they quote
//! values, and a value can be a PIN.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::RequestError;

/// What is refused in a key that occurs twice: which of the values counts, parsers disagree on.
pub(super) const EACH_KEY_ONCE: &str = "each key once";

/// What an object holds under a name.
#[derive(Clone, Copy)]
pub(super) enum Member<'a> {
    Absent,
    Once(&'a RawValue),
    Repeated,
}

impl<'a> Member<'a> {
    /// The value; `field` and `expected` are what an error says of it.
    pub(super) fn read<T: Deserialize<'a>>(
        self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<T, RequestError> {
        match self {
            Self::Absent => Err(RequestError::Missing { field }),
            Self::Once(raw) => {
                serde_json::from_str(raw.get()).map_err(|_| RequestError::Malformed {
                    field: field.into(),
                    expected,
                })
            }
            Self::Repeated => Err(RequestError::Malformed {
                field: field.into(),
                expected: EACH_KEY_ONCE,
            }),
        }
    }

    /// A string, borrowed where nothing in it is escaped.
    pub(super) fn text(
        self,
        field: &'static str,
        expected: &'static str,
    ) -> Result<Cow<'a, str>, RequestError> {
        self.read::<Text<'a>>(field, expected).map(|text| text.0)
    }
}

/// A JSON string. A bare `Cow` would always be copied.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The members called `names`, in that order; all others pass.
pub(super) fn members<'a, const N: usize>(
    object: &'a str,
    names: [&str; N],
) -> Result<[Member<'a>; N], serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(object);
    let members = json.deserialize_map(Members(names))?;
    json.end()?;
    Ok(members)
}

struct Members<'n, const N: usize>([&'n str; N]);

impl<'de, const N: usize> Visitor<'de> for Members<'_, N> {
    type Value = [Member<'de>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut members = [Member::Absent; N];
        while let Some(position) = object.next_key_seed(Position(&self.0))? {
            match position.and_then(|position| members.get_mut(position)) {
                Some(member @ Member::Absent) => *member = Member::Once(object.next_value()?),
                Some(member) => {
                    object.next_value::<IgnoredAny>()?;
                    *member = Member::Repeated;
                }
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(members)
    }
}

/// A key, as its position among the names.
struct Position<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for Position<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Position<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}
