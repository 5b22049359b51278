//! YAML and JSON into values, within limits.
//!
//! The parser hands over events; aliases, merge keys and types are ours, since kubectl has them as
//! YAML 1.1 does. Only the first document counts, as for kubectl. Errors quote nothing of the file.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, Tag};

use super::scalar::resolve;
use super::value::{Object, Value};

/// Objects and lists inside each other; a kubeconfig has half a dozen.
const MAX_DEPTH: usize = 100;
/// Values, copies made by aliases included; a thousand clusters with users are some 20,000.
const MAX_NODES: usize = 1_000_000;
/// Bytes of texts, copies included.
const MAX_BYTES: usize = 64 << 20;

/// Characters of a key in JSON, quotes included: what is written from here is JSON, and YAML reads
/// no longer key of it (YAML 1.2, section 7.4.2).
const MAX_KEY: usize = 1024;

const TOO_DEEP: &str = "more than 100 levels inside each other";
const TOO_MUCH: &str = "more than a kubeconfig can hold, anchors and aliases written out";

/// What is wrong, and on which line, from 1.
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) reason: Cow<'static, str>,
}

/// The first document; `Null` where there is none.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::default();
    while let Some(next) = parser.next_event() {
        let (event, span) = next.map_err(|error| Fault {
            line: error.marker().line(),
            reason: match error.kind() {
                ErrorKind::UnexpectedCharacter { .. } => "a character can't stand there".into(),
                ErrorKind::RecursionLimitExceeded => TOO_DEEP.into(),
                kind => kind.to_string().into(),
            },
        })?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        let event = as_it_ends(event, &span, text);
        builder.take(event).map_err(|reason| Fault {
            line: span.start.line(),
            reason: reason.into(),
        })?;
    }
    Ok(builder.root)
}

struct Builder {
    root: Value,
    open: Vec<Collection>,
    anchors: HashMap<usize, Value>,
    nodes: usize,
    bytes: usize,
}

/// A list or an object that has begun.
struct Collection {
    content: Content,
    /// 0 for none.
    anchor: usize,
}

enum Content {
    List(Vec<Value>),
    Object(Object, Option<Key>),
}

enum Key {
    Member(String),
    /// `<<`: the members of the value become members here.
    Merge,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            root: Value::Null,
            open: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            bytes: 0,
        }
    }
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), &'static str> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let tag = tag.map_or_else(String::new, |tag| full(&tag));
                self.charge(1, text.len())?;
                let plain = matches!(style, ScalarStyle::Plain);
                if text == "<<"
                    && (plain && tag.is_empty() || tag == MERGE)
                    && let Some(key) = self.awaited_key()
                {
                    *key = Some(Key::Merge);
                    return Ok(());
                }
                let value = resolve(text, plain, &tag)?;
                self.place(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Content::List(Vec::new()), anchor),
            Event::MappingStart(_, anchor, _) => {
                self.begin(Content::Object(Object::new(), None), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Collection { content, anchor }) = self.open.pop() else {
                    return Ok(());
                };
                let value = match content {
                    Content::List(items) => Value::List(items),
                    Content::Object(object, _) => Value::Object(object),
                };
                self.place(value, anchor)
            }
            Event::Alias(anchor) => {
                let value = self
                    .anchors
                    .get(&anchor)
                    .ok_or("an anchor's value contains itself")?;
                let weight = value.weight();
                if self.open.len() + weight.depth > MAX_DEPTH {
                    return Err(TOO_DEEP);
                }
                charge(&mut self.nodes, &mut self.bytes, weight.nodes, weight.bytes)?;
                let copy = value.duplicate();
                self.place(copy, 0)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, content: Content, anchor: usize) -> Result<(), &'static str> {
        if self.open.len() >= MAX_DEPTH {
            return Err(TOO_DEEP);
        }
        self.charge(1, 0)?;
        self.open.push(Collection { content, anchor });
        Ok(())
    }

    /// A complete value, where the parser stands.
    fn place(&mut self, value: Value, anchor: usize) -> Result<(), &'static str> {
        if anchor != 0 {
            let weight = value.weight();
            self.charge(weight.nodes, weight.bytes)?;
            self.anchors.insert(anchor, value.duplicate());
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = value,
            Some(Content::List(items)) => items.push(value),
            Some(Content::Object(object, key)) => match key.take() {
                None => *key = Some(Key::Member(name(&value)?)),
                // The last of several values stays, as in kubectl.
                Some(Key::Member(name)) => {
                    object.insert(name, value);
                }
                Some(Key::Merge) => merge(object, value)?,
            },
        }
        Ok(())
    }

    fn awaited_key(&mut self) -> Option<&mut Option<Key>> {
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::Object(_, key @ None)) => Some(key),
            _ => None,
        }
    }

    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<(), &'static str> {
        charge(&mut self.nodes, &mut self.bytes, nodes, bytes)
    }
}

/// A block scalar on an unfinished last line ends there for kubectl; the parser adds a line break.
fn as_it_ends<'a>(event: Event<'a>, span: &Span, text: &str) -> Event<'a> {
    let unfinished = || {
        let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
        !last.trim().is_empty()
            && span
                .byte_range()
                .is_some_and(|range| range.end == text.len())
    };
    match event {
        Event::Scalar(
            mut value,
            style @ (ScalarStyle::Literal | ScalarStyle::Folded),
            anchor,
            tag,
        ) if value.ends_with('\n') && unfinished() => {
            match &mut value {
                Cow::Borrowed(value) => *value = value.strip_suffix('\n').unwrap_or(value),
                Cow::Owned(value) => drop(value.pop()),
            }
            Event::Scalar(value, style, anchor, tag)
        }
        other => other,
    }
}

const MERGE: &str = "tag:yaml.org,2002:merge";

fn charge(
    nodes: &mut usize,
    bytes: &mut usize,
    more_nodes: usize,
    more_bytes: usize,
) -> Result<(), &'static str> {
    *nodes = nodes.saturating_add(more_nodes);
    *bytes = bytes.saturating_add(more_bytes);
    if *nodes > MAX_NODES || *bytes > MAX_BYTES {
        return Err(TOO_MUCH);
    }
    Ok(())
}

/// A tag without its shorthand.
fn full(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

/// A key as JSON has it.
fn name(key: &Value) -> Result<String, &'static str> {
    let name = match key {
        Value::Text(text) => text.to_string(),
        Value::Number(text) => super::scalar::number(text)
            .map_or_else(|| text.to_string(), |number| number.to_string()),
        Value::Flag(flag) => flag.to_string(),
        Value::Null | Value::List(_) | Value::Object(_) => return Err("a key is not a text"),
    };
    // No character takes more than six.
    if name.len() > MAX_KEY / 8 && super::value::json(&name).chars().count() > MAX_KEY {
        return Err("a key is longer than 1024 characters");
    }
    Ok(name)
}

/// Members that come by `<<` replace those before it and give way to those after it; of several
/// objects the first wins.
fn merge(object: &mut Object, value: Value) -> Result<(), &'static str> {
    let sources = match value {
        Value::List(items) => items,
        other => vec![other],
    };
    for source in sources.into_iter().rev() {
        match source {
            Value::Object(mut members) => object.append(&mut members),
            _ => return Err("what << names is not an object"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> String {
        match parse(text) {
            Ok(value) => super::super::value::json(&value).to_string(),
            Err(fault) => format!("line {}: {}", fault.line, fault.reason),
        }
    }

    #[test]
    fn yaml_and_json_are_read_alike() {
        for (text, expected) in [
            ("", "null"),
            ("# nothing\n", "null"),
            ("\u{feff}a: 1\n", r#"{"a":1}"#),
            (
                "a: [1, '1', yes]\r\nb:\r\n- c\r\n",
                r#"{"a":[1,"1",true],"b":["c"]}"#,
            ),
            (
                "{\n\t\"a\": [\n\t\t\"\\u00e9\\/\"\n\t]\n}\n",
                r#"{"a":["é/"]}"#,
            ),
            (
                "{\"a\":\"b\",\"c\":{\"d\":null}}",
                r#"{"a":"b","c":{"d":null}}"#,
            ),
            (
                "a: |\n  one\n  two\nb: >-\n  one\n  two\n",
                r#"{"a":"one\ntwo\n","b":"one two"}"#,
            ),
            ("a: 1\na: 2\n", r#"{"a":2}"#),
            ("1: a\ny: b\n", r#"{"1":"a","true":"b"}"#),
            ("a: 1\n---\nb: [\n", r#"{"a":1}"#),
            ("a: |\n  b\n\n  c", r#"{"a":"b\n\nc"}"#),
            ("a: >\n  b\n  c", r#"{"a":"b c"}"#),
            ("a: |\n  b\n  ", r#"{"a":"b\n"}"#),
            ("a: |\n  b\n# c", r#"{"a":"b\n"}"#),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn a_key_can_be_written_as_it_was_read() {
        for (key, longest) in [("é", 1022), ("\\t", 511), ("\\u007f", 170)] {
            let read = |length| json(&format!("? \"{}\"\n", key.repeat(length)));
            let written = read(longest);
            assert_eq!(json(&written), written);
            assert!(read(longest + 1).ends_with("longer than 1024 characters"));
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
            ("a: 1\n<<: 2\n", "line 2: what << names is not an object"),
            ("a: &x [*x]\n", "line 1: an anchor's value contains itself"),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_line_and_no_value() {
        for text in [
            "a: 1\nb: [1234\n",
            "a: 1\n\tb: 1234\n",
            "pin: \"1234\nb: c\n",
            "a: *1234\n",
        ] {
            let fault = parse(text).err().unwrap();
            assert!((1..=4).contains(&fault.line), "{text}: {}", fault.line);
            assert!(!fault.reason.contains("1234"), "{}", fault.reason);
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
            assert!(
                json(&text).contains("more than 100 levels"),
                "{}",
                json(&text)
            );
        }
        assert_eq!(json(&deep("[", "]", 100)), deep("[", "]", 100));
        // Through aliases as well.
        let mut text = format!("a0: &a0 {}\n", deep("[", "]", 60));
        for index in 1..5 {
            text += &format!(
                "a{index}: &a{index} {}\n",
                deep("[", "]", 20).replace('1', &format!("*a{}", index - 1))
            );
        }
        assert!(json(&text).contains("more than 100 levels"));
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut text = "a0: &a0 [1]\n".to_owned();
        for index in 1..40 {
            let previous = index - 1;
            text += &format!("a{index}: &a{index} [*a{previous}, *a{previous}, *a{previous}]\n");
        }
        assert!(json(&text).contains("anchors and aliases"));
        let long = format!(
            "a: &a \"{}\"\nb: [{}]\n",
            "x".repeat(1 << 20),
            "*a, ".repeat(100)
        );
        assert!(json(&long).contains("anchors and aliases"));
    }
}
