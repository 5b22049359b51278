//! YAML and JSON as a tree of nodes that know their places in the text, within limits.
//!
//! granit-parser reads the syntax; aliases are resolved here, types and merge keys in `decode`.
//! Only the first document counts, as for kubectl. Errors quote nothing of the file.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, Span, StructureStyle, Tag};

use super::decode::YamlError;

/// Maps and lists inside each other; a kubeconfig has half a dozen.
const MAX_DEPTH: usize = 100;
/// Bytes of texts and 64 for each node, copies made by aliases included; a thousand clusters with
/// users are some 20,000 nodes.
const MAX_WEIGHT: usize = 64 << 20;
const NODE_WEIGHT: usize = 64;

const TOO_DEEP: &str = "more than 100 levels inside each other";
const TOO_MUCH: &str = "more than a kubeconfig can hold, anchors and aliases written out";

/// A value or a key of the first document. No `Debug`: it can be a PIN or a key.
pub(super) struct Node {
    pub(super) content: Content,
    /// In bytes, from the first to behind the last. A block's ends with its last scalar; what has
    /// no text has an empty range.
    pub(super) range: Range<usize>,
    /// From 1.
    pub(super) line: usize,
    /// Between braces or brackets, as in JSON.
    pub(super) is_flow: bool,
    /// With aliases written out, as in [`MAX_WEIGHT`].
    weight: usize,
    /// 0 for a scalar.
    depth: usize,
}

pub(super) enum Content {
    Scalar {
        text: String,
        /// Written without quotes.
        is_plain: bool,
        /// In full; empty for none.
        tag: String,
    },
    List(Vec<Rc<Node>>),
    /// Keys and values as they are written, `<<` included.
    Map(Vec<(Rc<Node>, Rc<Node>)>),
    Alias(Rc<Node>),
}

impl Node {
    /// The content, an alias's being that of its anchor.
    pub(super) fn resolved(&self) -> &Content {
        match &self.content {
            Content::Alias(anchored) => anchored.resolved(),
            content => content,
        }
    }

    /// A scalar's, as it is written, without quotes and escapes.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The items of a list; none of anything else.
    pub(super) fn items(&self) -> &[Rc<Self>] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The value of a key in a map.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let Content::Map(members) = &self.content else {
            return None;
        };
        let found = members.iter().find(|(key, _)| key.text() == Some(name));
        found.map(|(_, value)| &**value)
    }
}

/// The first document; `None` where there is none.
///
/// # Errors
///
/// The text isn't YAML, or holds more than a kubeconfig can.
pub(super) fn parse(text: &str) -> Result<Option<Rc<Node>>, YamlError> {
    // YAML 1.1, and so kubectl, has three more line breaks: it would read another document.
    if let Some(at) = text.find(['\u{85}', '\u{2028}', '\u{2029}']) {
        let line = text.split_at(at).0.matches('\n').count() + 1;
        let reason = "U+0085, U+2028 or U+2029, which kubectl takes for a line break, has to be an escape in \
                      double quotes";
        return Err(YamlError::malformed(line, reason));
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut composer = Composer::default();
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::UnexpectedCharacter { .. } => "a character can't stand there".to_owned(),
                ErrorKind::RecursionLimitExceeded => TOO_DEEP.to_owned(),
                kind => kind.to_string(),
            };
            YamlError::malformed(error.marker().line(), reason)
        })?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        let line = span.start.line();
        let range = range(span, text).unwrap_or_default();
        let taken = composer.take(event, range, line, text);
        taken.map_err(|reason| YamlError::malformed(line, reason))?;
    }
    Ok(composer.root)
}

/// All comments with their lines, counted from 1.
pub(super) fn comments(text: &str) -> Vec<(usize, &str)> {
    let mut options = Options::default();
    options.max_buffered_comment_events = usize::MAX;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut comments = Vec::new();
    while let Some(Ok((event, span))) = parser.next_event() {
        if matches!(event, Event::Comment(..)) {
            let comment = span.slice(text).unwrap_or_default();
            comments.push((span.start.line(), comment.trim_end()));
        }
    }
    comments
}

/// A block scalar's doesn't reach into the margin of what follows it.
fn range(span: Span, text: &str) -> Option<Range<usize>> {
    let range = span.byte_range()?;
    let own = text.get(range.clone())?;
    let end = match own.rsplit_once('\n') {
        Some((_, margin)) if margin.trim().is_empty() => range.end - margin.len(),
        _ => range.end,
    };
    Some(range.start..end)
}

/// Makes a tree of the parser's events.
#[derive(Default)]
struct Composer {
    root: Option<Rc<Node>>,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, Rc<Node>>,
    weight: usize,
}

/// A list or a map that has begun.
struct OpenNode {
    node: Node,
    /// 0 for none.
    anchor: usize,
    /// The key whose value comes next.
    key: Option<Rc<Node>>,
}

impl Composer {
    fn take(
        &mut self,
        event: Event<'_>,
        range: Range<usize>,
        line: usize,
        text: &str,
    ) -> Result<(), &'static str> {
        let end = range.end;
        let new = |content, is_flow, weight, depth| Node {
            content,
            range: range.clone(),
            line,
            is_flow,
            weight,
            depth,
        };
        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let weight = NODE_WEIGHT + value.len();
                let content = Content::Scalar {
                    text: scalar_text(value, style, &range, text),
                    is_plain: matches!(style, ScalarStyle::Plain),
                    tag: tag.map_or_else(String::new, |tag| full(&tag)),
                };
                self.add(weight)?;
                self.place(new(content, false, weight, 0), anchor);
            }
            Event::Alias(anchor) => {
                let anchored = self.anchors.get(&anchor);
                let anchored = anchored.ok_or("an anchor's value contains itself")?.clone();
                let (weight, depth) = (anchored.weight, anchored.depth);
                if self.open.len() + depth > MAX_DEPTH {
                    return Err(TOO_DEEP);
                }
                self.add(weight)?;
                self.place(new(Content::Alias(anchored), false, weight, depth), 0);
            }
            Event::SequenceStart(style, anchor, _) => {
                let content = Content::List(Vec::new());
                self.begin(new(content, is_flow(style), NODE_WEIGHT, 1), anchor)?;
            }
            Event::MappingStart(style, anchor, _) => {
                let content = Content::Map(Vec::new());
                self.begin(new(content, is_flow(style), NODE_WEIGHT, 1), anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(mut open) = self.open.pop() {
                    if open.node.is_flow {
                        open.node.range.end = end;
                    }
                    self.place(open.node, open.anchor);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() >= MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        self.add(node.weight)?;
        self.open.push(OpenNode { node, anchor, key: None });
        Ok(())
    }

    /// Puts a complete node where the parser is.
    fn place(&mut self, node: Node, anchor: usize) {
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        let parent = &mut open.node;
        parent.weight = parent.weight.saturating_add(node.weight);
        parent.depth = parent.depth.max(node.depth + 1);
        parent.range.end = node.range.end;
        match &mut parent.content {
            Content::List(items) => items.push(node),
            Content::Map(members) => match open.key.take() {
                None => open.key = Some(node),
                Some(key) => members.push((key, node)),
            },
            Content::Scalar { .. } | Content::Alias(_) => {}
        }
    }

    fn add(&mut self, weight: usize) -> Result<(), &'static str> {
        self.weight = self.weight.saturating_add(weight);
        match self.weight > MAX_WEIGHT {
            true => Err(TOO_MUCH),
            false => Ok(()),
        }
    }
}

fn is_flow(style: StructureStyle) -> bool {
    matches!(style, StructureStyle::Flow)
}

/// A block scalar on an unfinished last line ends there for kubectl; the parser adds a line break.
fn scalar_text(value: Cow<'_, str>, style: ScalarStyle, at: &Range<usize>, text: &str) -> String {
    let mut value = value.into_owned();
    let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
    if is_block && at.end == text.len() && value.ends_with('\n') {
        let last_line = text.rsplit(['\n', '\r']).next().unwrap_or_default();
        if !last_line.trim().is_empty() {
            value.pop();
        }
    }
    value
}

/// A tag without its shorthand.
fn full(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

#[cfg(test)]
mod tests {
    use super::super::{decode, json};
    use super::*;

    fn read(text: &str) -> String {
        let value = match parse(text) {
            Ok(Some(node)) => decode::from_node::<serde_json::Value>(&node),
            Ok(None) => Ok(serde_json::Value::Null),
            Err(error) => Err(error),
        };
        match value {
            Ok(value) => json::text(&value),
            Err(error) => format!("line {}: {}", error.line, error.reason),
        }
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        for (text, expected) in [
            ("", "null"),
            ("# nothing\n", "null"),
            ("\u{feff}a: 1\n", r#"{"a":1}"#),
            ("a: [1, '1', yes]\r\nb:\r\n- c\r\n", r#"{"a":[1,"1",true],"b":["c"]}"#),
            ("{\n\t\"a\": [\n\t\t\"\\u00e9\\/\"\n\t]\n}\n", r#"{"a":["é/"]}"#),
            ("{\"a\":\"b\",\"c\":{\"d\":null}}", r#"{"a":"b","c":{"d":null}}"#),
            ("a: |\n  one\n  two\nb: >-\n  one\n  two\n", r#"{"a":"one\ntwo\n","b":"one two"}"#),
            ("a: 1\na: 2\n", r#"{"a":2}"#),
            ("1: a\ny: b\n", r#"{"1":"a","true":"b"}"#),
            ("a: 1\n---\nb: [\n", r#"{"a":1}"#),
            ("a: |\n  b\n\n  c", r#"{"a":"b\n\nc"}"#),
            ("a: >\n  b\n  c", r#"{"a":"b c"}"#),
            ("a: |\n  b\n  ", r#"{"a":"b\n"}"#),
            ("a: |\n  b\n# c", r#"{"a":"b\n"}"#),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_key_can_be_written_as_it_was_read() {
        for (key, longest) in [("é", 1022), ("\\t", 511), ("\\u007f", 170)] {
            let of_length = |length| read(&format!("? \"{}\"\n", key.repeat(length)));
            let written = of_length(longest);
            assert_eq!(read(&written), written);
            assert!(of_length(longest + 1).ends_with("longer than 1024 characters"));
        }
    }

    #[test]
    fn anchors_and_merge_keys() {
        for (text, expected) in [
            ("a: &x {b: 1}\nc: *x\n", r#"{"a":{"b":1},"c":{"b":1}}"#),
            (
                "x: &x {b: 1, c: 2}\nt: {b: 0, <<: *x, c: 3}\n",
                r#"{"t":{"b":1,"c":3},"x":{"b":1,"c":2}}"#,
            ),
            (
                "x: &x {b: 1}\nz: &z {b: 2, c: 2}\nt: {<<: [*x, *z]}\n",
                r#"{"t":{"b":1,"c":2},"x":{"b":1},"z":{"b":2,"c":2}}"#,
            ),
            ("\"<<\": 1\n", r#"{"<<":1}"#),
            ("a: 1\n<<: 2\n", "line 2: what << names is not a map"),
            ("a: &x [*x]\n", "line 1: an anchor's value contains itself"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_line_and_no_value() {
        for text in [
            "a: 1\nb: [1234\n",
            "a: 1\n\tb: 1234\n",
            "pin: \"1234\nb: c\n",
            "a: *1234\n",
            // Line breaks for kubectl, which would read the line behind them.
            "a: b # 1234\u{2028}c: d\n",
            "a: '1234\u{85}'\n",
            "{\"a\": \"1234\u{2029}\"}",
        ] {
            let error = parse(text).err().unwrap();
            assert!((1..=4).contains(&error.line), "{text}: {}", error.line);
            assert!(!error.reason.to_string().contains("1234"), "{}", error.reason);
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |open: &str, close: &str, count: usize| {
            format!("{}1{}", open.repeat(count), close.repeat(count))
        };
        for text in [
            deep("[", "]", 101),
            deep("[", "", 1_000_000),
            deep("{\"a\":", "}", 1_000_000),
            "- ".repeat(100_000),
        ] {
            assert!(read(&text).contains("more than 100 levels"), "{}", read(&text));
        }
        assert_eq!(read(&deep("[", "]", 100)), deep("[", "]", 100));
        // Through aliases as well.
        let mut text = format!("a0: &a0 {}\n", deep("[", "]", 60));
        for index in 1..5 {
            text += &format!(
                "a{index}: &a{index} {}\n",
                deep("[", "]", 20).replace('1', &format!("*a{}", index - 1))
            );
        }
        assert!(read(&text).contains("more than 100 levels"));
    }

    #[test]
    fn a_large_file_on_one_line_takes_no_time() {
        // Of the processor, which others may use as well.
        let spent = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        let before = spent();
        let text = format!("[{}]", "{\"a\":\"b\"},".repeat(100_000));
        assert_eq!(read(&text).len(), "{\"a\":\"b\"},".len() * 100_000 + 1);
        assert!(spent() - before < 20);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = "a0: &a0 [1]\n".to_owned();
        for index in 1..40 {
            let previous = index - 1;
            text += &format!("a{index}: &a{index} [*a{previous}, *a{previous}, *a{previous}]\n");
        }
        assert!(read(&text).contains("anchors and aliases"));
        let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(100));
        assert!(read(&long).contains("anchors and aliases"));
    }
}
