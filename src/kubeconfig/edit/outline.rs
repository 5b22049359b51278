//! Where things stand in the text of a kubeconfig: the places that an edit needs, as byte ranges.

use std::ops::Range;

use granit_parser::{Event, Parser, StructureStyle};

use super::super::value::Value;

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

    /// The line of the member at this path, its comment included, if it has one of its own and says
    /// this there. `text` is what the node is the outline of.
    pub(super) fn line<'a>(&self, path: &[&str], value: &Value, text: &'a str) -> Option<&'a str> {
        let (name, parents) = path.split_last()?;
        let mut parent = self;
        for name in parents {
            parent = &parent.member(name)?.1;
        }
        let (key, written) = parent.member(name)?;
        let line = text.get(key.range.start..)?.lines().next()?;
        let is_whole = written.range.end <= key.range.start + line.len();
        let is_same = written.text().is_some() && written.text() == value.as_text();
        (is_whole && is_same && !parent.is_flow).then_some(line)
    }

    fn text(&self) -> Option<&str> {
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
        let range = span.byte_range()?;
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
