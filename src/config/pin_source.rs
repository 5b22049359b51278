//! `pin` and `pinSource`: where the PIN comes from.
//!
//! No error shows `pin`, nor a `pinSource` that might be a PIN in the wrong place.

use std::path::PathBuf;

use super::{absolute_path, misconfigured, quoted, take, unfold, without_pin};
use crate::pin::{MAX_PIN_LENGTH, Pin};
use messages::error::Error;
use protocol::Configuration;

/// Where the PIN comes from. `pin` counts more than `pinSource`; without both, a person is asked.
#[derive(Default)]
pub enum PinSource {
    /// A program that the environment names.
    Askpass,
    Configuration(Pin),
    Environment(String),
    /// The absolute path of a file.
    File(PathBuf),
    #[default]
    Prompt,
    StandardInput,
}

impl PinSource {
    /// The source that a map names, if any. Its keys are taken out of the map.
    pub fn from_map(map: &mut Configuration) -> Result<Option<Self>, Error> {
        unfold(map)?;
        Self::take(map)
    }

    /// Does the same as [`Self::from_map`] without looking at `uri`.
    pub(super) fn take(map: &mut Configuration) -> Result<Option<Self>, Error> {
        let pin = take(map, "pin", pin)?.map(Self::Configuration);
        Ok(pin.or(take(map, "pinSource", Self::parse)?))
    }

    /// Replaces what the map says of the PIN by this `pinSource`.
    pub fn override_in(map: &mut Configuration, source: &str) {
        drop(map.take("pin"));
        if let Some(uri) = map.take("uri") {
            map.set("uri", &without_pin(&uri));
        }
        map.set("pinSource", source);
    }

    /// The environment variable that has the PIN, if the source is one.
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Environment(name) => Some(name),
            _ => None,
        }
    }

    /// Parses the value of `pinSource`. No error quotes it if it can be a PIN.
    pub fn parse(value: &str) -> Result<Self, Error> {
        match value.split_once(':') {
            None if value == "askpass" => Ok(Self::Askpass),
            None if value == "prompt" => Ok(Self::Prompt),
            None if value == "stdin" => Ok(Self::StandardInput),
            Some(("env", name)) if is_variable(name) => Ok(Self::Environment(name.to_owned())),
            Some(("env", _)) => Err(misconfigured(
                "pinSource env: names no environment variable",
                "write pinSource as env: and the variable's name, without its value: env:TOKEN_PIN",
            )),
            Some(("file", path)) => absolute_path(path).map(Self::File).ok_or_else(|| {
                // A text without a slash may be a PIN.
                let shown = if path.contains('/') { quoted(value) } else { "file:".to_owned() };
                misconfigured(
                    format!("pinSource {shown} holds no absolute path"),
                    "write pinSource as file: and the file's whole path: file:/home/jane/.pin",
                )
            }),
            _ => Err(misconfigured(
                "pinSource must be prompt, askpass, stdin, file:/path or env:NAME",
                "set pinSource to one of these; the PIN itself does not belong there",
            )),
        }
    }
}

fn pin(value: &str) -> Result<Pin, Error> {
    Pin::new(value).ok_or_else(|| {
        misconfigured(
            "pin holds a line break or another control character, or is too long",
            format!(
                "write pin on one line, at most {MAX_PIN_LENGTH} bytes, or leave it out to be asked"
            ),
        )
    })
}

/// Whether the name can be a variable's in a shell. A text that begins with a digit is more likely a PIN.
fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sources_are_refused() {
        for (value, what) in [
            ("Prompt", "pinSource must be prompt, askpass, stdin, file:/path or env:NAME"),
            ("123456", "pinSource must be prompt, askpass, stdin, file:/path or env:NAME"),
            ("file:", "pinSource file: holds no absolute path"),
            ("file:987654", "pinSource file: holds no absolute path"),
            ("file:~/pin", "pinSource \"file:~/pin\" holds no absolute path"),
            ("file:/a\0b", "pinSource \"file:/a\0b\" holds no absolute path"),
            ("env:", "pinSource env: names no environment variable"),
            ("env:PIN=123456", "pinSource env: names no environment variable"),
            ("env:A\0", "pinSource env: names no environment variable"),
            ("env:987654", "pinSource env: names no environment variable"),
            ("env:98-7654", "pinSource env: names no environment variable"),
        ] {
            assert_eq!(
                PinSource::parse(value).err().unwrap().to_string(),
                format!("configuration: {what}"),
                "{value}"
            );
        }
    }
}
