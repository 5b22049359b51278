//! The members of a JSON object, which are asked for by name and are still the text that was received.
//!
//! serde_json's own words never leave this module: they quote values, and a value can be a PIN.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{malformed, missing};
use messages::error::Error;

/// All members of a JSON object. A key that occurs twice is refused, since parsers disagree on which one counts.
pub(super) struct Members<'a>(pub(super) BTreeMap<String, &'a RawValue>);

impl<'a> Members<'a> {
    /// Reads the value of a field, such as `digest` or `signerOpts.Hash`. `expected` is what an error says of it.
    pub(super) fn read<T: Deserialize<'a>>(&self, field: &str, expected: &str) -> Result<T, Error> {
        let name = field.rsplit('.').next().unwrap_or_default();
        let raw = self.0.get(name).ok_or_else(|| missing(field))?;
        serde_json::from_str(raw.get()).map_err(|_| malformed(field, expected))
    }
}

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
        let mut members = BTreeMap::new();
        while let Some((key, value)) = object.next_entry()? {
            if members.insert(key, value).is_some() {
                return Err(A::Error::custom("a key occurs twice"));
            }
        }
        Ok(Members(members))
    }
}
