//! YAML as kubectl's parser takes it (go.yaml.in/yaml/v2), read into JSON's data and written from it.
//!
//! A kubeconfig can hold a PIN, and serde-saphyr's errors quote: only their places are passed on.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, Options, Spanned};

use super::shape::PathStep;
use messages::error::Error;
use messages::printable::{escaped, is_harmful};

/// The place where a text ends, as `, line 1, column 5`.
pub(super) fn end(text: &str) -> String {
    let (line, last) = text.split('\n').enumerate().last().unwrap_or_default();
    place(line as u64 + 1, last.chars().count() as u64 + 1)
}

/// A place in a text, counted from 1, as [`end`] has it.
fn place(line: u64, column: u64) -> String {
    format!(", line {line}, column {column}")
}

/// The place where something stands, as [`end`] has it; nothing where that isn't known.
fn shown(location: Option<Location>) -> String {
    location.map(|start| place(start.line(), start.column())).unwrap_or_default()
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // For kubectl what is merged wins over what stands before it, for YAML it never does.
        merge_keys: MergeKeyPolicy::Error,
        legacy_octal_numbers: true,
        // What ten thousand contexts with their clusters and users have, several times over.
        budget: serde_saphyr::budget! { max_nodes: 2_000_000, max_events: 4_000_000 },
    }
}

/// The data, or where it can't be read, and why.
pub(super) fn read(text: &str) -> Result<Value, (String, &'static str)> {
    // YAML 1.1, and so kubectl, has three more line breaks: it would read another document.
    if let Some((before, _)) = text.split_once(['\u{85}', '\u{2028}', '\u{2029}']) {
        return Err((
            end(before),
            "U+0085, U+2028 or U+2029, which kubectl takes for a line break, has to be an escape in double \
             quotes",
        ));
    }
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let reason = match error.without_snippet() {
            serde_saphyr::Error::Budget { .. } => "it holds more than a kubeconfig can",
            serde_saphyr::Error::MergeKeyNotAllowed { .. } => {
                "it has a merge key (<<), which kubectl reads otherwise than YAML has it; write out what it stands for, as \
                 `kubectl config view --raw` shows it"
            }
            _ => "YAML can't be read there",
        };
        (shown(error.location()), reason)
    })
}

/// The data as JSON, with escapes for what JSON takes as it is, and go.yaml.in/yaml/v2 refuses (readerc.go) or takes for a
/// line break.
pub(super) fn json(data: &Value) -> String {
    let is_unfit = |char| char <= '\u{ffff}' && is_harmful(char);
    let escape = |char| format!("\\u{:04x}", u32::from(char));
    escaped(&data.to_string(), is_unfit, escape).into_owned()
}

/// The data as YAML; `None` for what would be read as something else.
pub(super) fn write(data: &Value) -> Option<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = serde_saphyr::to_string_with_options(data, options).ok()?;
    // A token's names could show something else on a terminal.
    if text.chars().any(|char| is_harmful(char) && char != '\n') {
        let escape = |char| format!("\\U{:08x}", u32::from(char));
        text = escaped(&data.to_string(), is_harmful, escape).into_owned();
    }
    let is_read_back = read(&text).is_ok_and(|read| read == *data);
    is_read_back.then_some(text)
}

/// Entries as YAML, for pasting.
pub(super) fn excerpt(data: &Value) -> Result<String, Error> {
    write(data).ok_or_else(|| Error::internal("entries of a kubeconfig would be read otherwise"))
}

/// The place of the value to which the path leads, as [`end`] has it.
pub(super) fn position(text: &str, path: &[PathStep]) -> String {
    let found = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |data| {
        Descent(path).deserialize(data)
    });
    shown(found.ok().flatten())
}

/// Follows a path; what is beside it is passed over.
struct Descent<'a>(&'a [PathStep]);

impl<'de> DeserializeSeed<'de> for Descent<'_> {
    type Value = Option<Location>;

    fn deserialize<D: Deserializer<'de>>(self, data: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => Spanned::<IgnoredAny>::deserialize(data).map(|value| Some(value.referenced)),
            _ => data.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Descent<'_> {
    type Value = Option<Location>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map or a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = members.next_key::<String>()? {
            match self.0 {
                [PathStep::Member(name), rest @ ..] if *name == key => {
                    found = members.next_value_seed(Descent(rest))?;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let [PathStep::Item { index, .. }, rest @ ..] = self.0 else { return Ok(None) };
        for _ in 0..*index {
            items.next_element::<IgnoredAny>()?;
        }
        let found = items.next_element_seed(Descent(rest))?.flatten();
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_text_is_read_as_itself() {
        let scalars = "0 0123 0x01 01:02 1_000 yes y Off Null ~ {a &a *a !a %a @a 1e3 .5 2026-01-02 << = a: \
            https://[::1]:1 --a=01:02 --- .inf größe \"\\ \u{a0} \u{202e}\u{e0001} \u{7f}\u{fffd}\u{fffe}\u{ffff} \
            \u{85}\u{2028}\u{feff}\u{1f600}";
        let others = ["", "a: b", "a #b", "- a", "tab\tnul\0bell\x07", " a ", "a\nb\n"];
        for text in scalars.split(' ').chain(others) {
            let data = json!({"b": text, "a": [text, {text: null}]});
            let written = write(&data).unwrap();
            assert!(!written.contains(['\u{85}', '\u{2028}', '\u{2029}']), "{written}");
            assert_eq!(read(&written).ok().unwrap().to_string(), data.to_string(), "{written}");
        }
    }
}
