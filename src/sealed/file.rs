//! The file: the names of the registries, which are no secret, a checksum over all of it, and the envelope in PEM.
//!
//! With the names beside the envelope, an image from another registry costs no operation of the token. Nobody but the
//! envelope proves what is in it: the names are compared when it is opened. The checksum finds damage, such as in the
//! part of another recipient; it is no signature. A file of openssl has neither.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::envelope::{KeyLock, SealedEnvelope};
use super::error::SealedError;
use super::registries::Registries;
use super::registry::Registry;
use crate::printable::{excerpt, hex};

/// In bytes; a thousand recipients take a fifth of it.
pub const LONGEST_FILE: u64 = 1 << 20;

const BEGIN: &str = "-----BEGIN CMS-----\n";
const END: &str = "-----END CMS-----\n";
const NAME: &str = "Registry: ";
const CHECKSUM: &str = "SHA-256: ";

/// The length of a line of PEM.
const LINE: usize = 64;

/// A sealed file that was read.
#[derive(Debug)]
pub struct SealedFile {
    /// For messages: its path.
    pub name: String,
    /// What it has entries for, as the file says beside the envelope; `None` for a file of openssl.
    pub registries: Option<Vec<Registry>>,
    pub envelope: SealedEnvelope,
}

impl SealedFile {
    /// Reads a file's text; `name` is for messages.
    ///
    /// # Errors
    /// It is another kind of file, or damaged.
    pub fn read(bytes: &[u8], name: &str) -> Result<Self, SealedError> {
        let not_sealed = |reason: &str| SealedError::NotSealed {
            file: name.to_owned(),
            reason: reason.to_owned(),
        };
        let damaged = |reason: String| SealedError::Damaged { file: name.to_owned(), reason };
        if bytes.is_empty() {
            return Err(not_sealed("it is empty"));
        }
        if bytes.first() == Some(&0x30) {
            return Err(not_sealed(
                "it is in DER; `openssl cms -cmsout -inform DER -outform PEM` makes PEM of it",
            ));
        }
        let Some(text) = std::str::from_utf8(bytes).ok() else {
            return Err(not_sealed("it is not text"));
        };
        let Some((names, rest)) = text.split_once(BEGIN) else {
            return Err(not_sealed(other_than_sealed(text)));
        };
        let Some(base64) = rest.strip_suffix(END) else {
            return Err(damaged("it does not end with its last line".to_owned()));
        };
        let der = STANDARD.decode(base64.replace('\n', ""));
        let der = der.map_err(|_| damaged("its base64 can't be decoded".to_owned()))?;
        let registries = match names {
            "" => None,
            names => Some(named(names).ok_or_else(|| {
                damaged(
                    "what stands before the first line of PEM is not of this program".to_owned(),
                )
            })?),
        };
        if text != written(registries.as_deref(), &der) {
            return Err(damaged("its checksum or its form is wrong".to_owned()));
        }
        let envelope = SealedEnvelope::read(&der).map_err(|error| error.of(name))?;
        Ok(Self { name: name.to_owned(), registries, envelope })
    }

    /// The registries with their logins, from what the token has made of a recipient's lock.
    ///
    /// # Errors
    /// Those of [`SealedEnvelope::open`], and names beside the envelope that aren't those in it.
    pub fn open(&self, lock: &KeyLock, unlocked: &[u8]) -> Result<Registries, SealedError> {
        let opened = self.envelope.open(lock, unlocked, &self.name)?;
        let inside = opened.logins().iter().map(|it| &it.registry);
        if let Some(names) = &self.registries
            && !names.iter().eq(inside)
        {
            return Err(SealedError::Damaged {
                file: self.name.clone(),
                reason: "it has other registries than it says".to_owned(),
            });
        }
        Ok(opened)
    }
}

/// The text of a file.
pub(super) fn written(registries: Option<&[Registry]>, der: &[u8]) -> String {
    let mut text = String::new();
    if let Some(registries) = registries {
        for registry in registries {
            text.push_str(&format!("{NAME}{registry}\n"));
        }
        let sum = digest(&SHA256, &[text.as_bytes(), der].concat());
        text.push_str(&format!("{CHECKSUM}{}\n", hex(sum.as_ref())));
    }
    text.push_str(BEGIN);
    let mut base64 = STANDARD.encode(der);
    while !base64.is_empty() {
        let rest = base64.split_off(base64.len().min(LINE));
        text.push_str(&base64);
        text.push('\n');
        base64 = rest;
    }
    text.push_str(END);
    text
}

/// The registries that the lines before the envelope name.
fn named(lines: &str) -> Option<Vec<Registry>> {
    let mut lines: Vec<_> = lines.lines().collect();
    lines.pop()?.strip_prefix(CHECKSUM)?;
    lines.into_iter().map(|line| Registry::parse(line.strip_prefix(NAME)?)).collect()
}

fn other_than_sealed(text: &str) -> &'static str {
    if text.trim_start().starts_with('{') {
        "it is JSON, with readable passwords if it is a config.json"
    } else if text.contains("\r\n") && text.contains("-----BEGIN CMS-----") {
        "its lines end with a carriage return"
    } else if text.contains("-----BEGIN PKCS7-----") {
        "it is PKCS #7; `openssl cms -outform PEM` makes CMS"
    } else if text.starts_with("MIME-Version:") || text.contains("application/pkcs7-mime") {
        "it is S/MIME; `openssl cms -encrypt` needs -outform PEM"
    } else {
        "it has no line -----BEGIN CMS-----"
    }
}

impl SealedFile {
    /// What it has entries for, for a message.
    pub fn describe(&self) -> String {
        match &self.registries {
            None => "registries that it doesn't name".to_owned(),
            Some(registries) => {
                let names: Vec<_> = registries.iter().map(ToString::to_string).collect();
                excerpt(&names.join(", "))
            }
        }
    }
}
