//! The list for a person at a terminal: a table of the keys, and below it what couldn't be seen.

use crate::cli::listing::{CertificateEntry, ErrorEntry, KeyEntry, KeyNote, Listing, TokenEntry};
use crate::cli::session::{BAD, CommandOutput, PLAIN};
use crate::cli::table::Table;
use config::TokenName;
use messages::printable::printable;

use super::{key_style, remedy, seen};

const HEADINGS: [&str; 7] = ["library", "token", "key", "user", "groups", "type", "state"];

/// The table and what stands below it. `None` if all lines have to be shown instead: no token was found, the table
/// doesn't fit even without the keys' types, or there is no terminal.
pub(super) fn overview(
    listing: &Listing,
    names_object: bool,
    output: &CommandOutput,
) -> Option<String> {
    let with_types = table(listing, names_object, true).shown(output);
    let mut text = with_types.or_else(|| table(listing, names_object, false).shown(output))?;
    text += &unseen(listing, output);
    if let Some(remedy) = remedy(listing, names_object) {
        text += &format!("\n{}\n", output.folded(&printable(&format!("help: {remedy}")), 0, 2));
    }
    Some(text)
}

/// A table with a row for each key, and for each token that shows none.
fn table(listing: &Listing, names_object: bool, with_types: bool) -> Table<7> {
    let mut table = Table::new(HEADINGS);
    // Two libraries may show the same token.
    let are_several =
        listing.libraries.iter().filter(|library| !library.tokens.is_empty()).count() > 1;
    for (library, token) in listing.tokens() {
        let library = if are_several { file_name(&library.path_lib) } else { "" };
        let name = token_name(token, listing);
        let (mut pin, mut pin_style) = token.pin_note().unwrap_or_default();
        let mut partly = if token.error.is_some() { "not all of it was seen" } else { "" };
        if token.keys.is_empty() {
            let state = joined([pin, partly, seen(token, names_object)]);
            let [id, user, groups, kind] = <[String; 4]>::default();
            table.add(pin_style, [library.to_owned(), name, id, user, groups, kind, state]);
            continue;
        }
        for key in &token.keys {
            let style = if pin.is_empty() { key_style(key) } else { pin_style };
            let KeyCells { id, user, groups, state } = KeyCells::of(key);
            let kind = if with_types { key.kind.clone() } else { String::new() };
            let state = joined([state.as_str(), pin, partly]);
            // The notes on the token stand in the row of its first key.
            (pin, pin_style, partly) = ("", PLAIN, "");
            table.add(style, [library.to_owned(), name.clone(), id, user, groups, kind, state]);
        }
    }
    table
}

/// The cells of a key's row.
struct KeyCells {
    /// The key's objectId, and its label unless that is the user's name.
    id: String,
    user: String,
    groups: String,
    /// Until when the key can be used, or why it can't.
    state: String,
}

impl KeyCells {
    fn of(key: &KeyEntry) -> Self {
        // The date already says that the key has expired.
        let notes = key.notes.iter().filter(|note| **note != KeyNote::Expired);
        let mut state: Vec<_> = notes.map(KeyNote::to_string).collect();
        let Some(CertificateEntry { user, groups, expires, .. }) = &key.certificate else {
            let (user, groups) = (String::new(), String::new());
            return Self { id: key_name(key, ""), user, groups, state: state.join(", ") };
        };
        let verb = if key.notes.contains(&KeyNote::Expired) { "expired" } else { "expires" };
        state.insert(0, format!("{verb} {expires}"));
        let user = user.as_deref().unwrap_or_default();
        let groups: Vec<_> = groups.iter().map(|group| plain(group)).collect();
        Self {
            id: key_name(key, user),
            user: plain(user),
            groups: groups.join(", "),
            state: state.join(", "),
        }
    }
}

/// The key's objectId, and its label unless that is the user's name.
fn key_name(key: &KeyEntry, user: &str) -> String {
    let id = key.object_id.as_deref().unwrap_or("none");
    match key.object_label.as_str() {
        "" => id.to_owned(),
        label if label == user => id.to_owned(),
        label => format!("{id} {label:?}"),
    }
}

/// The token's label, with whatever else tells the token from the others.
fn token_name(token: &TokenEntry, listing: &Listing) -> String {
    let TokenName { slot, label, serial } = &token.name;
    let is_other = |other: &TokenName| other.label == *label && other.serial != *serial;
    let mut parts = Vec::new();
    if !label.is_empty() {
        parts.push(plain(label));
    }
    if label.is_empty() && !serial.is_empty()
        || listing.tokens().any(|(_, other)| is_other(&other.name))
    {
        parts.push(format!("serial {serial}"));
    }
    if token.needs_slot(label, serial) {
        parts.push(format!("slot {slot}"));
    }
    parts.join(", ")
}

/// The name, in quotes if it could be misread without them.
fn plain(name: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_.:@/+".contains(character);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("{name:?}") }
}

fn joined<'a>(notes: impl IntoIterator<Item = &'a str>) -> String {
    let notes: Vec<_> = notes.into_iter().filter(|note| !note.is_empty()).collect();
    notes.join(", ")
}

/// What couldn't be seen of tokens, and which libraries show none. The reason why a library can't be used is left out,
/// since the call wasn't about that, unless another request has the library.
fn unseen(listing: &Listing, output: &CommandOutput) -> String {
    let mut text = String::new();
    for (_, TokenEntry { error, .. }) in listing.tokens() {
        if let Some(error) = error {
            text += &paragraph(error, output);
        }
    }
    let (mut unusable, mut empty) = (Vec::new(), Vec::new());
    for library in &listing.libraries {
        match &library.error {
            Some(error) if error.is_busy => text += &paragraph(error, output),
            Some(_) => unusable.push(file_name(&library.path_lib)),
            None if library.blank().is_some() => unusable.push(file_name(&library.path_lib)),
            None if library.tokens.is_empty() => empty.push(file_name(&library.path_lib)),
            None => {}
        }
    }
    if !unusable.is_empty() || !empty.is_empty() {
        text += "\n";
    }
    for (title, names) in [("No token in", empty), ("Not usable (-v says why)", unusable)] {
        if !names.is_empty() {
            let line = format!("{title}: {}", names.join(", "));
            text += &format!("{}\n", output.folded(&printable(&line), 0, 2));
        }
    }
    text
}

/// An error and what to do about it, below an empty line.
fn paragraph(error: &ErrorEntry, output: &CommandOutput) -> String {
    let message = output.folded(&printable(&error.message), 0, 2);
    let help = output.folded(&printable(&format!("help: {}", error.help)), 0, 2);
    format!("\n{}\n{}\n", output.paint(BAD, &message), output.paint(PLAIN, &help))
}

/// The last part of a library's path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
