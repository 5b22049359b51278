//! A user written into a kubeconfig, and a context pointed at it; all else stays as it is, byte
//! for byte.
//!
//! The text is edited, not the data, since comments, order and quoting are not in the data. The
//! edited text is then read again: if it doesn't say what the old one said with this one change,
//! the file is left alone, whatever was odd about it.

mod members;
mod outline;
mod stanza;

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use self::members::Edit;
use self::outline::{Content, Node, comments, outline};
pub use self::stanza::Stanza;
use super::file::{self, Failure};
use super::replace::LockedFile;
use super::value::{Object, Value, json, object_at};
use super::{Kubeconfig, Locations, Provider};
use crate::kubeconfig::KubeconfigError;

/// What a user can be known by otherwise; client-go would take some of it before the provider.
const OTHER_CREDENTIALS: [&str; 10] = [
    "auth-provider",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "exec",
    "password",
    "token",
    "tokenFile",
    "username",
];

/// How a file begins that says nothing yet.
const HEAD: &str = "apiVersion: v1\nkind: Config\n";

/// A kubeconfig that nobody else writes meanwhile.
pub struct Document {
    path: PathBuf,
    file: LockedFile,
    text: Zeroizing<String>,
    is_changed: bool,
}

/// What became of the file.
#[derive(Debug, Eq, PartialEq)]
pub enum Saved {
    New,
    /// The path of a copy of what was there before.
    Replaced(PathBuf),
    Unchanged,
}

/// In which file an entry stands or belongs (client-go, tools/clientcmd, config.go): where there is
/// one of that name; else the first file that is there, else the last.
///
/// Errors: one of the files can't be read, or is none that could be replaced: a pipe's content would
/// be gone for whoever reads it next.
pub fn file_for(
    locations: &Locations,
    holds: impl Fn(&Kubeconfig) -> bool,
) -> Result<Option<PathBuf>, KubeconfigError> {
    for path in locations.files() {
        if let Some(reason) = file::not_replaceable(path) {
            return Err(KubeconfigError::Unwritable {
                path: path.clone(),
                reason: reason.to_owned(),
            });
        }
    }
    for path in locations.files() {
        let one = Locations {
            files: vec![path.clone()],
            required: false,
        };
        if holds(&Kubeconfig::load(&one)?) {
            return Ok(Some(path.clone()));
        }
    }
    let files = locations.files();
    Ok(files
        .iter()
        .find(|path| path.exists())
        .or_else(|| files.last())
        .cloned())
}

impl Kubeconfig {
    pub fn has_user(&self, name: &str) -> bool {
        self.users.contains_key(name)
    }

    /// Whether the user of this name has anything that [`Document::set_user`] would replace.
    pub fn has_credentials(&self, name: &str) -> bool {
        !self.credentials(name).is_empty()
    }

    fn credentials(&self, name: &str) -> Vec<&'static str> {
        let Some(Value::Object(user)) = self.users.get(name).and_then(|entry| entry.get("user"))
        else {
            return Vec::new();
        };
        OTHER_CREDENTIALS
            .into_iter()
            .filter(|key| user.contains_key(*key))
            .collect()
    }
}

impl Document {
    /// A file that is not there yet counts as an empty one.
    ///
    /// Errors: another program is writing it, or it `is_interrupted`, now or when it is saved; it
    /// can't be read, or not as a kubeconfig.
    pub fn open(path: &Path, is_interrupted: fn() -> bool) -> Result<Self, KubeconfigError> {
        let unreadable = |reason: String| KubeconfigError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let file = LockedFile::lock(path, is_interrupted).map_err(|reason| {
            KubeconfigError::Unwritable {
                path: path.to_owned(),
                reason,
            }
        })?;
        let text = match file.read() {
            Ok(content) => match std::str::from_utf8(&content) {
                Ok(text) => Zeroizing::new(text.to_owned()),
                Err(_) => return Err(unreadable("it is not UTF-8".to_owned())),
            },
            Err(Failure::Missing) => Zeroizing::default(),
            Err(Failure::Other(reason)) => return Err(unreadable(reason)),
        };
        // What kubectl refuses is not for us to add to.
        Kubeconfig::parse(text.as_bytes(), path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            text,
            is_changed: false,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes or changes the user of this name; `as`, extensions and what isn't known here stay. So
    /// does what `stays` in the provider's configuration, by its key and value, whatever the stanza
    /// says in its place. The names of what the user had and has no more.
    pub fn set_user(
        &mut self,
        name: &str,
        stanza: &Stanza,
        stays: impl Fn(&str, &str) -> bool,
    ) -> Result<Vec<String>, KubeconfigError> {
        let before = self.model()?;
        let mut lost = before.credentials(name);
        if matches!(before.provider(name), Provider::ExternalSigner(_)) {
            lost.retain(|key| *key != "auth-provider");
        }
        let mut lost: Vec<_> = lost.into_iter().map(str::to_owned).collect();
        let mut expected = self.model()?;
        let entry = expected.users.entry(name.to_owned()).or_default();
        entry.insert("name".to_owned(), Value::text(name));
        let Some(user) = object_at(entry, "user") else {
            return Err(self.not_editable());
        };
        user.retain(|key, _| key == "auth-provider" || !OTHER_CREDENTIALS.contains(&key.as_str()));
        lost.extend(stanza.apply(user, stays));
        let text = self.with_user(name, before.users.get(name), entry, stanza);
        if *before.to_json() != *expected.to_json() {
            let old = self.text.clone();
            self.accept(text, &expected)?;
            lost.extend(lost_comments(&old, &self.text));
        }
        Ok(lost)
    }

    /// Whether there is anything to be saved.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Points the context of this name at the user.
    ///
    /// Errors: there is no such context in this file.
    pub fn set_context(&mut self, name: &str, user: &str) -> Result<(), KubeconfigError> {
        let before = self.model()?;
        let mut expected = self.model()?;
        let candidates: Vec<_> = expected.contexts.keys().cloned().collect();
        let Some(entry) = expected.contexts.get_mut(name) else {
            return Err(KubeconfigError::NoContext {
                name: name.to_owned(),
                candidates,
            });
        };
        let Some(context) = object_at(entry, "context") else {
            return Err(self.not_editable());
        };
        context.insert("user".to_owned(), Value::text(user));
        if *before.to_json() == *expected.to_json() {
            return Ok(());
        }
        let text = self.with_user_of_context(name, user);
        self.accept(text, &expected)
    }

    /// Writes what has changed, if anything has.
    pub fn save(self) -> Result<Saved, KubeconfigError> {
        if !self.is_changed {
            return Ok(Saved::Unchanged);
        }
        match self.file.replace(self.text.as_bytes()) {
            Ok(Some(backup)) => Ok(Saved::Replaced(backup)),
            Ok(None) => Ok(Saved::New),
            Err(reason) => Err(KubeconfigError::Unwritable {
                path: self.path,
                reason,
            }),
        }
    }

    fn model(&self) -> Result<Kubeconfig, KubeconfigError> {
        Kubeconfig::parse(self.text.as_bytes(), &self.path)
    }

    /// The edited text, if it says what is expected.
    fn accept(
        &mut self,
        text: Option<Zeroizing<String>>,
        expected: &Kubeconfig,
    ) -> Result<(), KubeconfigError> {
        let text = text.ok_or_else(|| self.not_editable())?;
        let is_as_expected = Kubeconfig::parse(text.as_bytes(), &self.path)
            .is_ok_and(|edited| *edited.to_json() == *expected.to_json());
        if !is_as_expected {
            return Err(self.not_editable());
        }
        self.is_changed |= *text != *self.text;
        self.text = text;
        Ok(())
    }

    fn not_editable(&self) -> KubeconfigError {
        KubeconfigError::NotEditable {
            path: self.path.clone(),
        }
    }

    /// With the user's entry as it is to be: changed where it stands, or made.
    fn with_user(
        &self,
        name: &str,
        old: Option<&Object>,
        new: &Object,
        stanza: &Stanza,
    ) -> Option<Zeroizing<String>> {
        let root = outline(&self.text);
        let users = root.as_ref().and_then(|root| root.member("users"));
        match (users.and_then(|(_, users)| users.named(name)), old) {
            (Some(item), Some(old)) if !item.is_flow => {
                // So that every line has an end.
                let text = match self.text.ends_with('\n') {
                    true => self.text.clone(),
                    false => self.spliced(self.text.len(), self.text.len(), "\n"),
                };
                let edits = members::edits(&text, item, (old, new), stanza)?;
                Some(edited(&text, &edits))
            }
            (Some(item), _) => Some(self.spliced(item.range.start, item.range.end, &json(new))),
            (None, _) => {
                let block = |indent| stanza.as_entry(new, indent);
                self.with_new_entry("users", &block, &json(new))
            }
        }
    }

    /// With one more entry in a list.
    fn with_new_entry(
        &self,
        list: &str,
        block: &dyn Fn(usize) -> Zeroizing<String>,
        flow: &str,
    ) -> Option<Zeroizing<String>> {
        let text = self.text.as_str();
        let Some(root) = outline(text) else {
            let start = if text.is_empty() || text.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            let new = format!("{start}{HEAD}{list}:\n- {}", *block(2));
            return Some(self.spliced(text.len(), text.len(), &new));
        };
        let Content::Object(members) = &root.content else {
            // `null`, or a document with nothing in it.
            let before = text.get(..root.range.start)?;
            let start = if before.is_empty() || before.ends_with('\n') {
                ""
            } else {
                "\n"
            };
            let entry = block(2);
            let new = format!("{start}{HEAD}{list}:\n- {}", entry.trim_end());
            let is_last = text.get(root.range.end..)?.is_empty();
            let end = if is_last { "\n" } else { "" };
            return Some(self.spliced(root.range.start, root.range.end, &format!("{new}{end}")));
        };
        let Some((key, value)) = root.member(list) else {
            if root.is_flow {
                let comma = if members.is_empty() { "" } else { "," };
                let new = format!("\"{list}\":[{flow}]{comma}");
                return Some(self.spliced(root.range.start + 1, root.range.start + 1, &new));
            }
            let column = self.column(root.range.start);
            let margin = " ".repeat(column);
            let new = format!("{margin}{list}:\n{margin}- {}", *block(column + 2));
            return Some(self.with_lines_behind(root.range.end, &new));
        };
        match (value.items().last(), value.is_flow, root.is_flow) {
            (Some(_), true, _) => {
                let end = value.range.end.checked_sub(1)?;
                Some(self.spliced(end, end, &format!(",{flow}")))
            }
            (Some(last), false, _) => {
                let column = self.column(last.range.start);
                let before = text.get(..last.range.start)?.trim_end();
                let margin = self.column(before.strip_suffix('-')?.len());
                let gap = " ".repeat(column.checked_sub(margin + 1)?.max(1));
                let indent = margin + 1 + gap.len();
                let new = format!("{}-{gap}{}", " ".repeat(margin), *block(indent));
                Some(self.with_lines_behind(value.range.end, &new))
            }
            (None, _, true) => {
                let new = format!("[{flow}]");
                Some(self.spliced(value.range.start, value.range.end, &new))
            }
            // An empty list, or a null that may have no text at all.
            (None, _, false) => {
                let column = self.column(key.range.start);
                let margin = " ".repeat(column);
                let colon = text.get(key.range.end..)?.find(':')? + key.range.end + 1;
                let entry = block(column + 2);
                let new = format!("\n{margin}- {}", entry.trim_end());
                Some(self.spliced(colon, value.range.end.max(colon), &new))
            }
        }
    }

    fn with_user_of_context(&self, name: &str, user: &str) -> Option<Zeroizing<String>> {
        let text = self.text.as_str();
        let root = outline(text)?;
        let (_, contexts) = root.member("contexts")?;
        let (_, context) = contexts.named(name)?.member("context")?;
        let scalar = |node: &Node| {
            if node.is_flow {
                json(&Value::text(user)).to_string()
            } else {
                stanza::scalar(user)
            }
        };
        if let Some((key, old)) = context.member("user") {
            if !old.range.is_empty() {
                return Some(self.spliced(old.range.start, old.range.end, &scalar(context)));
            }
            // A null without a text.
            let colon = text.get(key.range.end..)?.find(':')? + key.range.end + 1;
            return Some(self.spliced(colon, colon, &format!(" {}", scalar(context))));
        }
        if context.is_flow {
            let is_empty =
                matches!(&context.content, Content::Object(members) if members.is_empty());
            let comma = if is_empty { "" } else { "," };
            let new = format!("\"user\":{}{comma}", scalar(context));
            return Some(self.spliced(context.range.start + 1, context.range.start + 1, &new));
        }
        let margin = " ".repeat(self.column(context.range.start));
        let new = format!("{margin}user: {}\n", scalar(context));
        Some(self.with_lines_behind(context.range.end, &new))
    }

    /// With new lines below the one that `place` stands in.
    fn with_lines_behind(&self, place: usize, new: &str) -> Zeroizing<String> {
        let text = self.text.as_str();
        let before = text.get(..place).unwrap_or_default();
        if before.ends_with('\n') {
            return self.spliced(place, place, new);
        }
        match text.get(place..).and_then(|rest| rest.find('\n')) {
            Some(length) => self.spliced(place + length + 1, place + length + 1, new),
            None => self.spliced(text.len(), text.len(), &format!("\n{new}")),
        }
    }

    /// With another text in place of these bytes.
    fn spliced(&self, start: usize, end: usize, new: &str) -> Zeroizing<String> {
        let new = Zeroizing::new(new.to_owned());
        let range = start..end;
        edited(&self.text, &[Edit { range, new }])
    }

    fn column(&self, place: usize) -> usize {
        outline::column(&self.text, place)
    }
}

/// The text with edits in the order of their places; their lines end as its own do.
fn edited(text: &str, edits: &[Edit]) -> Zeroizing<String> {
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut parts = Vec::new();
    let mut place = 0;
    for Edit { range, new } in edits {
        parts.push(text.get(place..range.start).unwrap_or_default());
        for (number, line) in new.split('\n').enumerate() {
            if number > 0 {
                parts.push(line_end);
            }
            parts.push(line);
        }
        place = range.end;
    }
    parts.push(text.get(place..).unwrap_or_default());
    // In one buffer: a growing one would leave pieces behind.
    Zeroizing::new(parts.concat())
}

/// In which lines of the old text the comments stand that the new one doesn't have.
fn lost_comments(old: &str, new: &str) -> Option<String> {
    let mut kept: Vec<_> = comments(new).into_iter().map(|(_, text)| text).collect();
    let lines: Vec<_> = comments(old)
        .into_iter()
        .filter(|(_, text)| match kept.iter().position(|it| it == text) {
            Some(place) => {
                kept.swap_remove(place);
                false
            }
            None => true,
        })
        .map(|(line, _)| line.to_string())
        .collect();
    match lines.as_slice() {
        [] => None,
        [line] => Some(format!("a comment in line {line}")),
        [lines @ .., last] => Some(format!("comments in lines {} and {last}", lines.join(", "))),
    }
}

#[cfg(test)]
mod tests;
