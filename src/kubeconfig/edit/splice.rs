//! The text of a kubeconfig with changes where they belong: what says the right thing already keeps
//! its lines, with its comments and in its order.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value};

use super::super::entries::EXTERNAL_SIGNER;
use super::super::json;
use super::super::yaml::{self, Content, Node};
use super::layout::{Layout, in_order, like};
use super::provider_config::CONFIG;

/// How a file begins that says nothing yet.
const HEAD: &str = "apiVersion: v1\nkind: Config\n";

/// The text that says `after` in place of `before`, with the comments of `layout`. `None` for a text
/// that is too odd for that; one that isn't can still say something else, so the caller reads it.
pub(super) fn edited(
    text: &str,
    (before, after): (&Value, &Value),
    layout: &Layout,
) -> Option<String> {
    let root = yaml::parse(text).ok()?;
    let (before, after) = (before.as_object()?, after.as_object()?);
    let is_block = root.as_ref().is_some_and(|root| !root.is_flow);
    // So that every line has an end.
    let text = match is_block && !text.ends_with('\n') {
        true => format!("{text}\n"),
        false => text.to_owned(),
    };
    let mut splicer = Splicer { text: &text, layout, edits: Vec::new() };
    match root {
        Some(root) if matches!(root.content, Content::Map(_)) => {
            splicer.map(&[], &root, before, after)?;
        }
        root => splicer.fill(root.as_deref(), before, after)?,
    }
    Some(splicer.finish())
}

struct Splicer<'a> {
    text: &'a str,
    layout: &'a Layout,
    /// Other texts in place of these bytes, in the order of their places.
    edits: Vec<(Range<usize>, String)>,
}

impl Splicer<'_> {
    /// A document that is `null` or not there at all.
    fn fill(
        &mut self,
        root: Option<&Node>,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Option<()> {
        let end = self.text.len();
        let range = root.map_or(end..end, |root| root.range.clone());
        let is_at_line_start = range.start == line_start(self.text, range.start);
        let mut new = if is_at_line_start { "" } else { "\n" }.to_owned() + HEAD;
        let mut added = in_order(after);
        added.retain(|(name, value)| before.get(*name) != Some(*value));
        let lines = added.iter().map(|(name, it)| self.layout.member(&[name], it, 0));
        new.push_str(&lines.collect::<Vec<_>>().join("\n"));
        if !self.text.get(range.end..)?.starts_with([' ', '\r', '\n']) {
            new.push('\n');
        }
        self.edits.push((range, new));
        Some(())
    }

    fn map(
        &mut self,
        path: &[&str],
        node: &Node,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
    ) -> Option<()> {
        let Content::Map(members) = &node.content else {
            return None;
        };
        let mut added = in_order(new);
        added.retain(|(name, value)| node.member(name).is_none() && old.get(*name) != Some(*value));
        if node.is_flow && !added.is_empty() {
            let added = added.drain(..);
            let added = added.map(|(key, it)| format!("{}:{}", json::text(&key), json::text(it)));
            let comma = if members.is_empty() { "" } else { "," };
            let added = added.collect::<Vec<_>>().join(",") + comma;
            self.insert(node.range.start + 1, added);
        }
        let mut end = node.range.start;
        for (place, (key, value)) in members.iter().enumerate() {
            let name = key.text()?;
            let path = [path, &[name]].concat();
            end = self.end_of_line(value.range.end.max(key.range.end));
            match (old.get(name), new.get(name)) {
                (Some(_), None) if node.is_flow => {
                    let elements = members.iter().map(|(key, value)| {
                        let stays = key.text().is_some_and(|name| new.contains_key(name));
                        (key.range.start..value.range.end, stays)
                    });
                    self.cut(place, &elements.collect::<Vec<_>>())?;
                }
                (Some(_), None) => {
                    let start = line_start(self.text, key.range.start);
                    self.edits.push((start..end, String::new()));
                }
                (old, Some(new))
                    if old != Some(new) || self.layout.comment(&path, new).is_some() =>
                {
                    self.member(&path, node, (key, value), (old, new))?;
                }
                _ => {}
            }
        }
        let indent = column(self.text, node.range.start);
        for (name, value) in added {
            let member = self.layout.member(&[path, &[name]].concat(), value, indent);
            self.insert(end, format!("{}{member}\n", " ".repeat(indent)));
        }
        Some(())
    }

    /// A member of `parent` whose value changes.
    fn member(
        &mut self,
        path: &[&str],
        parent: &Node,
        (key, value): (&Node, &Node),
        (old, new): (Option<&Value>, &Value),
    ) -> Option<()> {
        match (&value.content, old, new) {
            (Content::Alias(_), _, Value::Array(_) | Value::Object(_)) => return None,
            (Content::Map(_), Some(Value::Object(old)), Value::Object(new))
                if !is_another_provider(path, old)
                    && (path.ends_with(&["context"])
                        || can_change_inside(parent, value, old, new)) =>
            {
                return self.map(path, value, old, new);
            }
            (Content::List(items), Some(Value::Array(old)), Value::Array(new))
                if !items.is_empty() && !new.is_empty() && is_named(old) && is_named(new) =>
            {
                return self.list(path, value, old, new);
            }
            _ => {}
        }
        let colon = self.text.get(key.range.end..)?.find(':')? + key.range.end + 1;
        let is_empty = value.range.is_empty();
        let end = if is_empty { colon } else { value.range.end };
        if parent.is_flow {
            let start = if is_empty { colon } else { value.range.start };
            let space = if is_empty { " " } else { "" };
            let text = match (&value.content, new) {
                (Content::Scalar { .. }, Value::String(new)) => {
                    like(self.text.get(start..end)?, new, true)
                }
                _ => json::text(new),
            };
            self.edits.push((start..end, format!("{space}{text}")));
            return Some(());
        }
        let indent = column(self.text, key.range.start);
        let mut text = match (&value.content, new) {
            (Content::Scalar { .. }, Value::String(new))
                if !path.starts_with(CONFIG) && !is_empty =>
            {
                format!(" {}", like(self.text.get(value.range.clone())?, new, false))
            }
            _ => self.layout.value(path, new, indent),
        };
        if self.text.get(..end)?.ends_with('\n') {
            text.push('\n');
        }
        // In place of a comment that is there, which is about what was there.
        let is_explained = self.layout.comment(path, new).is_some();
        let is_list = matches!(value.content, Content::List(_));
        let end = match (is_explained || is_list) && !text.ends_with('\n') {
            true => end + self.text.get(end..)?.find(['\r', '\n'])?,
            false => end,
        };
        self.edits.push((colon..end, text));
        Some(())
    }

    /// A list whose elements are distinguished by name and of which some stay.
    fn list(&mut self, path: &[&str], node: &Node, old: &[Value], new: &[Value]) -> Option<()> {
        let (old, new) = (by_name(old), by_name(new));
        for (place, item) in node.items().iter().enumerate() {
            let name = item.member("name").and_then(Node::text).unwrap_or_default();
            match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) if old != new => self.map(path, item, old, new)?,
                (Some(_), None) if node.is_flow => {
                    let elements = node.items().iter().map(|item| {
                        let name = item.member("name").and_then(Node::text);
                        let stays = new.contains_key(name.unwrap_or_default());
                        (item.range.clone(), stays)
                    });
                    self.cut(place, &elements.collect::<Vec<_>>())?;
                }
                (Some(_), None) => {
                    let start = line_start(self.text, self.dash(item)?);
                    let end = self.end_of_line(item.range.end);
                    self.edits.push((start..end, String::new()));
                }
                _ => {}
            }
        }
        for (_, element) in new.iter().filter(|(name, _)| !old.contains_key(*name)) {
            if node.is_flow {
                let end = node.range.end.checked_sub(1)?;
                self.insert(end, format!(",{}", json::text(element)));
                continue;
            }
            // With the dash and the text where the last one has them.
            let last = node.items().last()?.range.start;
            let dash = self.dash(node.items().last()?)?;
            let (margin, indent) = (column(self.text, dash), column(self.text, last));
            let gap = " ".repeat(indent.checked_sub(margin + 1)?.max(1));
            let item = self.layout.item(path, element, margin + 1 + gap.len());
            let place = self.end_of_line(node.range.end);
            self.insert(place, format!("{}-{gap}{item}\n", " ".repeat(margin)));
        }
        Some(())
    }

    /// Where the dash of a list's item stands.
    fn dash(&self, item: &Node) -> Option<usize> {
        let before = self.text.get(..item.range.start)?.trim_end();
        Some(before.strip_suffix('-')?.len())
    }

    /// Removes an element between braces or brackets, and one comma with it: that before it, unless
    /// nothing stays before it. The elements are given with whether they stay.
    fn cut(&mut self, place: usize, elements: &[(Range<usize>, bool)]) -> Option<()> {
        let (before, from_here) = elements.split_at_checked(place)?;
        let (own, _) = from_here.first()?;
        let last_before = before.last().filter(|_| before.iter().any(|(_, stays)| *stays));
        let range = match (last_before, from_here.get(1)) {
            (Some((last, _)), _) => last.end..own.end,
            (None, Some((next, _))) => own.start..next.start,
            (None, None) => own.clone(),
        };
        self.edits.push((range, String::new()));
        Some(())
    }

    fn insert(&mut self, place: usize, new: String) {
        self.edits.push((place..place, new));
    }

    /// The end of the line that ends at a place or contains it.
    fn end_of_line(&self, place: usize) -> usize {
        let (before, behind) = self.text.split_at_checked(place).unwrap_or((self.text, ""));
        match behind.find('\n') {
            _ if before.ends_with('\n') => place,
            Some(length) => place + length + 1,
            None => self.text.len(),
        }
    }

    /// The text with the edits; their lines end as its own do.
    fn finish(self) -> String {
        let is_crlf = self.text.contains("\r\n");
        let mut text = String::new();
        let mut place = 0;
        for (range, new) in self.edits {
            text.push_str(self.text.get(place..range.start).unwrap_or_default());
            match is_crlf {
                true => text.push_str(&new.replace('\n', "\r\n")),
                false => text.push_str(&new),
            }
            place = range.end;
        }
        text.push_str(self.text.get(place..).unwrap_or_default());
        text
    }
}

fn is_named(list: &[Value]) -> bool {
    list.iter().all(|element| element.get("name").is_some())
}

fn by_name(list: &[Value]) -> BTreeMap<&str, &Map<String, Value>> {
    list.iter()
        .filter_map(|element| Some((element.get("name")?.as_str()?, element.as_object()?)))
        .collect()
}

/// Whether a map can be changed member by member. In flow style none can go; and a map in flow style
/// that stands in a block is better written as a block if more than a scalar changes.
fn can_change_inside(
    parent: &Node,
    value: &Node,
    old: &Map<String, Value>,
    new: &Map<String, Value>,
) -> bool {
    let is_scalar_or_same = |(key, new): (&String, &Value)| {
        old.get(key).is_some_and(|old| old == new || !new.is_object())
    };
    !value.is_flow
        || old.keys().all(|key| new.contains_key(key))
            && (parent.is_flow || new.iter().all(is_scalar_or_same))
}

/// Whose comments are not about ours.
fn is_another_provider(path: &[&str], old: &Map<String, Value>) -> bool {
    path.ends_with(&["auth-provider"])
        && old.get("name").and_then(Value::as_str) != Some(EXTERNAL_SIGNER)
}

/// Where the line of a place begins.
fn line_start(text: &str, place: usize) -> usize {
    let before = text.get(..place).unwrap_or_default();
    before.rfind('\n').map_or(0, |end| end + 1)
}

/// How many characters stand before a place in its line.
fn column(text: &str, place: usize) -> usize {
    let before = text.get(line_start(text, place)..place).unwrap_or_default();
    before.trim_start_matches('\u{feff}').chars().count()
}
