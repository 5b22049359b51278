//! The members of an entry changed where they stand: what says the right thing already keeps its
//! lines, with its comments and in its order.

use std::ops::Range;

use zeroize::Zeroizing;

use super::super::entries::EXTERNAL_SIGNER;
use super::super::value::{Object, Value, json, text_at};
use super::Stanza;
use super::outline::{Content, Node, column, line_start};

/// Another text in place of these bytes.
pub(super) struct Edit {
    pub(super) range: Range<usize>,
    pub(super) new: Zeroizing<String>,
}

/// In the order of their places, what makes an old entry the new one. `None` for a text that is too
/// odd for that.
pub(super) fn edits(
    text: &str,
    entry: &Node,
    (old, new): (&Object, &Object),
    stanza: &Stanza,
) -> Option<Vec<Edit>> {
    let mut rewrite = Rewrite {
        text,
        stanza,
        edits: Vec::new(),
    };
    rewrite.object(&[], entry, old, new)?;
    Some(rewrite.edits)
}

struct Rewrite<'a> {
    text: &'a str,
    stanza: &'a Stanza,
    edits: Vec<Edit>,
}

impl Rewrite<'_> {
    fn object(&mut self, path: &[&str], node: &Node, old: &Object, new: &Object) -> Option<()> {
        let Content::Object(members) = &node.content else {
            return None;
        };
        let indent = column(self.text, node.range.start);
        let mut end = node.range.start;
        for (key, value) in members {
            let name = key.text()?;
            let start = key.range.start;
            end = self.end_of(key, value);
            let path = [path, &[name]].concat();
            match (old.get(name), new.get(name)) {
                (_, None) => self.edit(line_start(self.text, start)..end, Zeroizing::default()),
                (Some(was), Some(is))
                    if *json(was) == *json(is) && !self.stanza.explains(&path, is) => {}
                (Some(Value::Object(was)), Some(Value::Object(is)))
                    if !value.is_flow
                        && matches!(value.content, Content::Object(_))
                        && !is_another_provider(&path, was) =>
                {
                    self.object(&path, value, was, is)?;
                }
                (_, Some(is)) => self.edit(start..end, self.stanza.member(&path, is, indent)),
            }
        }
        let has = |name: &str| members.iter().any(|(key, _)| key.text() == Some(name));
        let missing = self.stanza.in_order(new);
        for (name, value) in missing.into_iter().filter(|(name, _)| !has(name)) {
            let member = self.stanza.member(&[path, &[name]].concat(), value, indent);
            let margin = " ".repeat(indent);
            self.edit(end..end, Zeroizing::new(format!("{margin}{}", *member)));
        }
        Some(())
    }

    /// Behind the last of a member's lines.
    fn end_of(&self, key: &Node, value: &Node) -> usize {
        let end = value.range.end.max(key.range.end);
        let (before, behind) = self.text.split_at_checked(end).unwrap_or((self.text, ""));
        match behind.find('\n') {
            _ if before.ends_with('\n') => end,
            Some(length) => end + length + 1,
            None => self.text.len(),
        }
    }

    fn edit(&mut self, range: Range<usize>, new: Zeroizing<String>) {
        self.edits.push(Edit { range, new });
    }
}

/// Whose comments are not about ours.
fn is_another_provider(path: &[&str], was: &Object) -> bool {
    path == ["user", "auth-provider"] && text_at(was, "name") != EXTERNAL_SIGNER
}
