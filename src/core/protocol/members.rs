//! The members of a JSON object that are asked for by name, still in the text they came in.
//!
//! Values are parsed one by one, so a request is refused for its first fault in the protocol's
//! order and by field name. serde_json's own words never get out of here: they quote
//! values, and a value can be a PIN.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::{malformed, missing};
use crate::error::Error;

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
    ) -> Result<T, Error> {
        match self {
            Self::Absent => Err(missing(field)),
            Self::Once(raw) => {
                serde_json::from_str(raw.get()).map_err(|_| malformed(field, expected))
            }
            Self::Repeated => Err(malformed(field, EACH_KEY_ONCE)),
        }
    }
}

/// All members of a JSON object, in its order.
pub(super) struct Members<'a>(pub(super) Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
        object.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = object.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// The members called `names`, in that order; all others are ignored.
pub(super) fn members<'a, const N: usize>(
    object: &'a str,
    names: [&str; N],
) -> Result<[Member<'a>; N], serde_json::Error> {
    let Members(members) = serde_json::from_str(object)?;
    Ok(names.map(|name| {
        let mut values = members.iter().filter(|(key, _)| key == name);
        match (values.next(), values.next()) {
            (None, _) => Member::Absent,
            (Some((_, value)), None) => Member::Once(value),
            (Some(_), Some(_)) => Member::Repeated,
        }
    }))
}
