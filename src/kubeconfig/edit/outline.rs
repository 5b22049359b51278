//! Where things stand in the text of a kubeconfig: the places that an edit needs, as byte ranges.

use std::ops::Range;

use granit_parser::{Event, Parser, Span, StructureStyle};

/// A value of the first document.
pub(super) struct Node {
    /// From its first byte to behind its last. A block's ends with its last scalar.
    pub(super) range: Range<usize>,
    pub(super) content: Content,
    /// Between braces or brackets, as in JSON.
    pub(super) is_flow: bool,
}

pub(super) enum Content {
    Scalar(String),
    List(Vec<Node>),
    /// Keys and values.
    Object(Vec<(Node, Node)>),
    Alias,
}

impl Node {
    pub(super) fn member(&self, name: &str) -> Option<&(Self, Self)> {
        let Content::Object(members) = &self.content else {
            return None;
        };
        members.iter().find(|(key, _)| key.text() == Some(name))
    }

    pub(super) fn items(&self) -> &[Self] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The item of a list whose `name` is this.
    pub(super) fn named(&self, name: &str) -> Option<&Self> {
        self.items().iter().find(|item| {
            item.member("name")
                .is_some_and(|(_, value)| value.text() == Some(name))
        })
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(text) => Some(text),
            _ => None,
        }
    }
}

/// Of the first document; `None` where there is none, and for a text that isn't YAML.
pub(super) fn outline(text: &str) -> Option<Node> {
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    loop {
        let (event, span) = parser.next_event()?.ok()?;
        // What isn't there has a place, but no bytes.
        let range = place_of(span, text)?;
        let node = match event {
            Event::Scalar(text, ..) => Node {
                range,
                content: Content::Scalar(text.into_owned()),
                is_flow: false,
            },
            Event::Alias(_) => Node {
                range,
                content: Content::Alias,
                is_flow: false,
            },
            Event::SequenceStart(style, ..) | Event::MappingStart(style, ..) => {
                open.push(Open {
                    is_list: matches!(event, Event::SequenceStart(..)),
                    is_flow: matches!(style, StructureStyle::Flow),
                    start: range.start,
                    children: Vec::new(),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop()?.close(range.end),
            Event::DocumentEnd | Event::StreamEnd => return None,
            _ => continue,
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => return Some(node),
        }
    }
}

/// All comments with their lines, counted from 1: between the scalars, behind a space or at the
/// beginning of a line.
pub(super) fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut parser = Parser::new_from_str(text);
    let mut comments = Vec::new();
    let (mut line, mut place) = (1, 0);
    loop {
        let Some(Ok((event, span))) = parser.next_event() else {
            return comments;
        };
        let is_end = matches!(event, Event::StreamEnd);
        let scalar = match event {
            Event::Scalar(..) => place_of(span, text).unwrap_or(place..place),
            Event::StreamEnd => text.len()..text.len(),
            _ => continue,
        };
        let gap = text.get(place..scalar.start).unwrap_or_default();
        for (number, part) in gap.split('\n').enumerate() {
            let is_comment = |at: &usize| {
                let before = part.get(..*at).unwrap_or_default();
                before.is_empty() || before.ends_with(char::is_whitespace)
            };
            let mut signs = part.match_indices('#').map(|(at, _)| at);
            if let Some(comment) = signs.find(is_comment).and_then(|at| part.get(at..)) {
                comments.push((line + number, comment.trim_end()));
            }
        }
        let passed = text.get(place..scalar.end).unwrap_or_default();
        line += passed.matches('\n').count();
        place = place.max(scalar.end);
        if is_end {
            return comments;
        }
    }
}

/// A block scalar's doesn't end in the margin of what follows it.
fn place_of(span: Span, text: &str) -> Option<Range<usize>> {
    let range = span.byte_range()?;
    let own = text.get(range.clone())?;
    let end = match own.rsplit_once('\n') {
        Some((_, margin)) if margin.trim().is_empty() => range.end - margin.len(),
        _ => range.end,
    };
    Some(range.start..end)
}

/// Where the line of a place begins.
pub(super) fn line_start(text: &str, place: usize) -> usize {
    let before = text.get(..place).unwrap_or_default();
    before.rfind('\n').map_or(0, |end| end + 1)
}

/// How many characters stand before a place in its line.
pub(super) fn column(text: &str, place: usize) -> usize {
    let before = text.get(line_start(text, place)..place).unwrap_or_default();
    before.trim_start_matches('\u{feff}').chars().count()
}

/// A list or an object that has begun.
struct Open {
    is_list: bool,
    is_flow: bool,
    start: usize,
    children: Vec<Node>,
}

impl Open {
    fn close(self, end: usize) -> Node {
        let last = self.children.last().map_or(self.start, |it| it.range.end);
        Node {
            range: self.start..if self.is_flow { end } else { last },
            content: if self.is_list {
                Content::List(self.children)
            } else {
                let mut members = Vec::new();
                let mut children = self.children.into_iter();
                while let (Some(key), Some(value)) = (children.next(), children.next()) {
                    members.push((key, value));
                }
                Content::Object(members)
            },
            is_flow: self.is_flow,
        }
    }
}
