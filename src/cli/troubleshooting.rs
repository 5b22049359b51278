//! docs/troubleshooting.md against what the program can say: nothing is missing from it, nothing
//! in it is stale, and each error stands under its own exit code.
//!
//! Errors are values, and `samples` has one of each. Problems of a configuration, warnings, notes and
//! the remarks of `check` are texts where they are made; they are read from the sources. What prompts
//! say isn't held.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::samples;
use crate::process::signals::INTERRUPTIONS;

const DOCUMENT: &str = "docs/troubleshooting.md";
/// Sections without an exit code.
const WARNINGS: &str = "Warnings";
const REMARKS: &str = "What `check` remarks";
const NOTES: &str = "Notes";
/// Where a process belongs that died of a signal: a shell sees 128 and its number.
const INTERRUPTED: &str = "130";

/// Something that the program can say, and the section of the document that it belongs to.
struct Statement {
    section: String,
    text: String,
    from: String,
}

/// A heading of the document: fixed words around placeholders (`<…>` or `…`).
struct Entry {
    section: String,
    heading: String,
    fixed: Vec<String>,
}

impl Entry {
    fn new(section: &str, heading: &str) -> Self {
        let mut fixed = vec![String::new()];
        let mut rest = heading.chars();
        while let Some(character) = rest.next() {
            if character == '<' {
                let _ = rest.by_ref().find(|it| *it == '>');
            }
            match (character, fixed.last_mut()) {
                ('<' | '…', _) | (_, None) => fixed.push(String::new()),
                (_, Some(words)) => words.push(character),
            }
        }
        Self {
            section: section.to_owned(),
            heading: heading.to_owned(),
            fixed,
        }
    }

    /// How much of it is fixed; of two entries that match, the one that says more is meant.
    fn weight(&self) -> usize {
        self.fixed.iter().map(String::len).sum()
    }

    fn matches(&self, text: &str) -> bool {
        let [first, between @ ..] = self.fixed.as_slice() else {
            return false;
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        let Some((last, between)) = between.split_last() else {
            return rest.is_empty();
        };
        for words in between {
            match rest.split_once(words.as_str()) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}

/// The sections by their exit codes (or titles), and their entries: each code span of a heading of
/// the third level is one, and what a line of the notes' list begins with.
fn entries() -> Vec<Entry> {
    let text = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let mut section = String::new();
    let mut entries = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let code = title.strip_prefix("Exit code ");
            section = code.map_or_else(
                || title.to_owned(),
                |rest| {
                    let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
                    digits.unwrap().to_owned()
                },
            );
        } else if let Some(heading) = line.strip_prefix("### ") {
            let spans: Vec<_> = heading.split('`').skip(1).step_by(2).collect();
            assert!(!spans.is_empty(), "a heading without a message: {heading}");
            entries.extend(spans.iter().map(|span| Entry::new(&section, span)));
        } else if let Some(note) = line.strip_prefix("- `")
            && section == NOTES
        {
            entries.extend(note.split('`').next().map(|it| Entry::new(NOTES, it)));
        }
    }
    entries
}

fn statements() -> Vec<Statement> {
    let errors = samples::all().into_iter().map(|error| Statement {
        section: error.exit_code().to_string(),
        text: error.to_string(),
        from: format!("{error:?}"),
    });
    let interruptions = INTERRUPTIONS.map(|told| {
        let (_, error) = told.lines().next().unwrap().split_once("error: ").unwrap();
        Statement {
            section: INTERRUPTED.to_owned(),
            text: error.to_owned(),
            from: "a signal".to_owned(),
        }
    });
    let mut statements: Vec<_> = errors.chain(interruptions).collect();
    for (place, call, argument, section, before) in [
        ("config", "Problem::new", 0, "3", ""),
        ("config/mod.rs", "missing", 0, "3", ""),
        ("config/pin_source.rs", "refused", 0, "3", ""),
        ("config/object_id.rs", "problem", 0, "3", "objectId VALUE "),
        ("config/uri.rs", "problem", 1, "3", "uri: VALUE "),
        ("tunnel", "unusable", 0, "9", UPSTREAM),
        ("tunnel", "UpstreamFailure::Unusable", 0, "9", UPSTREAM),
        ("token", "objects.failed", 0, "6", ""),
        ("cli", "report::warning", 0, WARNINGS, ""),
        ("cli/run.rs", "left", 0, WARNINGS, LEFT),
        ("tunnel", "tell_silence", 0, WARNINGS, UPSTREAM),
        ("tunnel", "tell_late", 0, WARNINGS, "cluster \"VALUE\": "),
        ("cli", "report::note", 0, NOTES, ""),
        ("cli", "report::steps", 0, NOTES, ""),
        ("tunnel", "tell_connection", 0, NOTES, "cluster \"VALUE\": "),
        ("token", "module.waiting", 1, NOTES, ""),
        ("cli/check", "concern", 1, REMARKS, ""),
    ] {
        let found = said(&root().join("src").join(place), call, argument);
        assert!(!found.is_empty(), "no {call} is left in src/{place}");
        let after = if call == "objects.failed" {
            " failed: C_Sign: CKR_DEVICE_ERROR"
        } else {
            ""
        };
        // What a helper puts together is said by those who call it.
        let found = found.into_iter().filter(|(text, _)| words(text) > 1);
        statements.extend(found.map(|(text, from)| Statement {
            section: section.to_owned(),
            text: format!("{before}{text}{after}"),
            from,
        }));
    }
    statements
}

const UPSTREAM: &str = "cluster \"VALUE\" (VALUE): ";
const LEFT: &str = "context \"VALUE\" is left as it is, and kubectl may not be able to use it: ";

/// How many of a text are its own.
fn words(text: &str) -> usize {
    text.replace("VALUE", "").split_whitespace().count()
}

/// The texts that are written into an argument of a call, values replaced, and where.
fn said(place: &Path, call: &str, argument: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in sources(place) {
        let whole = fs::read_to_string(&file).unwrap();
        let code = whole.split("\nmod tests {").next().unwrap();
        let pattern = format!("{call}(");
        for (at, _) in code.match_indices(&pattern) {
            let before = &code[..at];
            let is_other = before.ends_with(|it: char| it.is_alphanumeric() || it == '_')
                || before.ends_with("fn ");
            if is_other {
                continue;
            }
            let line = before.lines().count();
            let from = format!("{}:{line}", file.display());
            let (texts, values) = literals(&code[at + pattern.len()..], argument);
            assert!(
                !texts.is_empty() || PASSED_ON.contains(&values.trim()),
                "{from}: no text is written there; if one is passed on, look for it where it is made"
            );
            found.extend(texts.into_iter().map(|text| (text, from.clone())));
        }
    }
    found
}

/// What is in such an argument where the text comes from another function, whose calls are looked
/// at instead, or is another program's.
const PASSED_ON: &[&str] = &[
    "&error",
    "concerns.join()",
    "error.to_string()",
    "line",
    "reason",
    "reason.to_owned()",
    "text",
    "what",
];

/// The string literals in one argument of a call, from behind its parenthesis, and the rest of it.
/// Those of one word are keys and separators.
fn literals(code: &str, wanted: usize) -> (Vec<String>, String) {
    let mut texts = Vec::new();
    let mut values = String::new();
    let (mut depth, mut argument) = (0, 0);
    let mut rest = code.chars();
    while let Some(character) = rest.next() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                argument += 1;
                continue;
            }
            '"' => {
                let text = literal(&mut rest);
                if argument == wanted && text.trim().contains(' ') && text.len() > 2 {
                    texts.push(text);
                }
                continue;
            }
            _ => {}
        }
        if argument == wanted {
            values.push(character);
        }
    }
    (texts, values)
}

/// Up to the closing quote; `{…}` is a value.
fn literal(rest: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(character) = rest.next() {
        match character {
            '"' => break,
            '{' => {
                let _ = rest.by_ref().find(|it| *it == '}');
                text.push_str("VALUE");
            }
            '\\' => match rest.next() {
                // The line goes on where the next one's text begins.
                Some('\n') => {
                    let next = rest.as_str().trim_start();
                    *rest = next.chars();
                }
                Some(escaped) => text.push(escaped),
                None => {}
            },
            _ => text.push(character),
        }
    }
    text
}

fn sources(place: &Path) -> Vec<PathBuf> {
    if place.is_file() {
        return vec![place.to_owned()];
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(place).unwrap() {
        let path = entry.unwrap().path();
        let is_source = path.extension().is_some_and(|it| it == "rs");
        if path.is_dir() || is_source && !path.ends_with("error.rs") {
            files.extend(sources(&path));
        }
    }
    files.sort();
    files
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_error_problem_warning_and_note_is_explained_in_its_place_and_nothing_else_is() {
    let entries = entries();
    let mut used = BTreeSet::new();
    let mut missing = BTreeMap::new();
    for statement in statements() {
        let entry = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.section == statement.section)
            .filter(|(_, entry)| entry.matches(&statement.text))
            .max_by_key(|(_, entry)| entry.weight());
        match entry {
            Some((place, _)) => drop(used.insert(place)),
            None => drop(missing.insert(
                format!("{}: {}", statement.section, statement.text),
                statement.from,
            )),
        }
    }
    let stale: Vec<_> = entries
        .iter()
        .enumerate()
        .filter(|(place, _)| !used.contains(place))
        .map(|(_, entry)| format!("{}: {}", entry.section, entry.heading))
        .collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "{DOCUMENT} lacks a heading, in the section of the exit code, for {missing:#?}\n\
         and nothing says any more {stale:#?}"
    );
}

/// An entry of placeholders would explain everything; one heading twice, nothing for sure.
#[test]
fn every_entry_has_words_of_its_own() {
    let mut seen = BTreeSet::new();
    for entry in entries() {
        assert!(entry.weight() >= 9, "{:?} fits everything", entry.heading);
        assert!(
            seen.insert((entry.section, entry.fixed)),
            "{:?} stands there twice",
            entry.heading
        );
    }
}

/// What to do has to be said under each: it is what somebody came for.
#[test]
fn every_entry_says_why_and_what_to_do() {
    let text = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    let headings = text.split("\n### ").skip(1);
    for entry in headings {
        let (heading, body) = entry.split_once('\n').unwrap();
        let body = body.split("\n## ").next().unwrap();
        for part in ["**Why:** ", "**Do:** "] {
            assert!(body.contains(part), "{part:?} is missing below {heading}");
        }
    }
}

#[test]
fn every_error_comes_with_a_remedy() {
    for error in samples::all() {
        assert!(error.remedy().to_string().len() > 10, "{error:?}");
    }
}

#[test]
fn placeholders_stand_for_anything_and_words_for_themselves() {
    let matches = |heading, text| Entry::new("", heading).matches(text);
    assert!(matches(
        "slotId <id> holds no token",
        "slotId 7 holds no token"
    ));
    assert!(matches("no port: …", "no port: anything"));
    assert!(matches("no … at all", "no token at all"));
    assert!(!matches("no … at all", "no token at all, really"));
    assert!(!matches("slotId <id> holds no token", "slotId 7 is empty"));
    assert!(!matches("the request", "the request is not valid"));
}

#[test]
fn texts_are_read_from_the_sources_as_they_are_printed() {
    let code = r#"format!("it {} \
                   on {x}", y), "other (words", &["more, of it"]) "behind it""#;
    assert_eq!(literals(code, 0).0, ["it VALUE on VALUE"]);
    assert_eq!(literals(code, 1).0, ["other (words"]);
    assert_eq!(literals(code, 2).0, ["more, of it"]);
}
