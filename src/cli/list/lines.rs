//! The whole list: a line for each library, below it its tokens, and below each token its keys.

use clap::builder::styling::Style;

use super::{key_style, remedy, seen};
use crate::cli::listing::{
    CertificateEntry, ErrorEntry, KeyEntry, KeyNote, LibraryEntry, Listing, TokenEntry,
};
use crate::cli::session::{BAD, CommandOutput, HEADING, PLAIN};
use config::TokenName;
use messages::printable::{printable, quoted};

/// The whole list, as lines for people.
pub(super) struct Lines<'a> {
    text: String,
    output: &'a CommandOutput,
    /// Whether a certain key or certificate was asked for.
    names_object: bool,
    /// What to do with the first token, if all tokens are empty.
    remedy: Option<String>,
}

impl<'a> Lines<'a> {
    /// The list as text, in the styles that the output can show.
    pub(super) fn of(listing: &Listing, names_object: bool, output: &'a CommandOutput) -> String {
        let remedy = remedy(listing, names_object);
        let mut lines = Self { text: String::new(), output, names_object, remedy };
        for library in &listing.libraries {
            lines.library(library);
        }
        lines.text
    }

    /// Adds a line that is indented by so many characters.
    fn add(&mut self, style: Style, indent: usize, line: &str) {
        let line = self.output.folded(&printable(line), indent, indent + 2);
        self.text += &format!("{}\n", self.output.paint(style, &line));
    }

    fn error(&mut self, error: &ErrorEntry) {
        self.add(BAD, 2, &error.message);
        self.add(PLAIN, 2, &format!("help: {}", error.help));
    }

    fn library(&mut self, library: &LibraryEntry) {
        self.add(HEADING, 0, &library.path_lib);
        if let Some(error) = &library.error {
            self.error(error);
        } else if library.tokens.is_empty() {
            match (library.blank(), library.empty_slots.as_deref()) {
                (Some(error), _) => self.error(&ErrorEntry::from(&error)),
                (None, Some([])) => self.add(PLAIN, 2, "no token, and no reader for one"),
                (None, Some(names)) => {
                    self.add(PLAIN, 2, &format!("no token in {}", names.join(", ")));
                }
                (None, None) => self.add(PLAIN, 2, "no such token"),
            }
        }
        for token in &library.tokens {
            self.token(token);
        }
    }

    fn token(&mut self, token: &TokenEntry) {
        let (pin, style) = token.pin_note().unwrap_or_default();
        let seen = seen(token, self.names_object);
        let TokenName { slot, label, serial } = &token.name;
        let name = format!("slotId {slot}, tokenLabel \"{label}\", tokenSerial \"{serial}\"");
        let notes: Vec<_> = [pin, seen].into_iter().filter(|note| !note.is_empty()).collect();
        self.add(style, 2, &noted(name, &notes.join(", ")));
        for key in &token.keys {
            self.add(key_style(key), 4, &line(key));
        }
        if let Some(error) = &token.error {
            self.error(error);
        }
        if let Some(remedy) = self.remedy.take() {
            self.add(PLAIN, 2, &format!("help: {remedy}"));
        }
    }
}

/// The text, followed by the notes after a colon.
fn noted(text: String, notes: &str) -> String {
    if notes.is_empty() { text } else { format!("{text}: {notes}") }
}

/// Describes a key in a line: `objectId 2, objectLabel "SIGN", RSA-2048, user "jane", …`.
fn line(key: &KeyEntry) -> String {
    let id = key.object_id.as_deref().unwrap_or("none");
    let mut parts = vec![format!("objectId {id}"), format!("objectLabel \"{}\"", key.object_label)];
    if !key.kind.is_empty() {
        parts.push(key.kind.clone());
    }
    if let Some(CertificateEntry { user, groups, issuer, expires, credential_id, .. }) =
        &key.certificate
    {
        if let Some(user) = user {
            parts.push(format!("user \"{user}\""));
        }
        if !groups.is_empty() {
            parts.push(format!("groups {}", quoted(groups)));
        }
        parts.push(format!("issued by {issuer}"));
        let verb = if key.notes.contains(&KeyNote::Expired) { "expired" } else { "expires" };
        parts.push(format!("{verb} {expires}"));
        parts.push(credential_id.clone());
    }
    let notes: Vec<_> = key.notes.iter().map(KeyNote::to_string).collect();
    noted(parts.join(", "), &notes.join(", "))
}
