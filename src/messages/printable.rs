//! How text from a token, a certificate or a kubeconfig is made fit for a terminal. Whatever writes such text to a terminal
//! has to use this.
//!
//! A label can contain an escape sequence that repaints the prompt, or a direction mark that reverses the line. Such a
//! character becomes a visible `\u{…}`. All other text stays as it is.

use std::borrow::Cow;

/// The longest [`excerpt`] of a text, in characters.
const EXCERPT_LENGTH: usize = 60;

/// The text, with each harmful character made visible. It is borrowed if there is nothing to change.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_harmful, |character| character.escape_unicode().to_string())
}

/// Lines that are fit for a terminal, whoever has written the text in them: none can become two, and none can move the
/// cursor.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PrintableLines(String);

impl PrintableLines {
    /// The lines, each with a line ending. A line ending within a line is made visible.
    pub fn of(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let lines = lines.into_iter();
        Self(lines.map(|line| format!("{}\n", printable(line.as_ref()))).collect())
    }

    /// The lines as one text, with a line ending after each.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The text, with each character that `is_wanted` escaped by `escape`.
pub fn escaped(
    text: &str,
    is_wanted: impl Fn(char) -> bool,
    escape: impl Fn(char) -> String,
) -> Cow<'_, str> {
    if !text.chars().any(&is_wanted) {
        return Cow::Borrowed(text);
    }
    let shown = |character: char| {
        if is_wanted(character) { escape(character) } else { character.to_string() }
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// The beginning of a text, for a message. It is not made printable yet.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The texts as `"a", "b"`. A text that contains a comma or a quote is still recognised as one.
pub fn quoted(texts: &[String]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{text:?}")).collect();
    quoted.join(", ")
}

/// The bytes in lower-case hexadecimal digits without separators.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits in groups of eight, to be read aloud and compared.
pub fn in_groups_of_eight(digits: &str) -> String {
    let digits: Vec<_> = digits.chars().collect();
    let groups: Vec<String> = digits.chunks(8).map(|group| group.iter().collect()).collect();
    groups.join(" ")
}

/// The text as one word of a shell command, whichever characters it has.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"%+,-./:@_".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
}

/// A JSON document, made fit for a terminal. As JSON it stays the same.
pub fn printable_json(document: &str) -> Cow<'_, str> {
    // Line endings are only between its strings, and stay.
    let is_raw = |character: char| is_harmful(character) && character != '\n';
    escaped(document, is_raw, |character| {
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect()
    })
}

/// Whether the character could move the cursor, or hide or reorder text: control characters, and those that Unicode allows
/// to be left out where they can't be shown (Default_Ignorable_Code_Point).
pub fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}'                        // soft hyphen
            | '\u{34f}'                     // combining grapheme joiner
            | '\u{61c}'                     // Arabic letter mark
            | '\u{115f}' | '\u{1160}'       // Hangul fillers
            | '\u{17b4}' | '\u{17b5}'       // Khmer vowels that aren't shown
            | '\u{180b}'..='\u{180f}'       // Mongolian separator and selectors
            | '\u{200b}'..='\u{200f}'       // zero width, direction marks
            | '\u{2028}'..='\u{202e}'       // line separators, embeddings and overrides
            | '\u{2060}'..='\u{206f}'       // invisible operators, isolates
            | '\u{3164}' | '\u{ffa0}'       // Hangul fillers
            | '\u{fe00}'..='\u{fe0f}'       // variation selectors
            | '\u{feff}'                    // byte order mark
            | '\u{fff0}'..='\u{fffb}'       // reserved to be ignored, interlinear annotation
            | '\u{fffe}' | '\u{ffff}'       // no characters, and refused in a kubeconfig
            | '\u{1bca0}'..='\u{1bca3}'     // shorthand format controls
            | '\u{1d173}'..='\u{1d17a}'     // musical beams and slurs
            | '\u{e0000}'..='\u{e0fff}') // tags, further variation selectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        let lines = PrintableLines::of(["user \"\u{1b}[2J\"", "group \"a\nb\""]);
        assert_eq!(lines.as_str(), "user \"\\u{1b}[2J\"\ngroup \"a\\u{a}b\"\n");
    }

    #[test]
    fn ordinary_text_is_borrowed() {
        for text in ["", "PIV_II (PIV Card Holder pin)", "Ключ – größe 日本語"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn attacks_become_visible() {
        for (attack, shown) in [
            ("\x1b[2Jcleared", "\\u{1b}[2Jcleared"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("back\x08space\x7f", "back\\u{8}space\\u{7f}"),
            ("line\r\nfeed", "line\\u{d}\\u{a}feed"),
            ("\u{202e}nip ruoy", "\\u{202e}nip ruoy"),
            ("zero\u{200b}width", "zero\\u{200b}width"),
            ("nul\0", "nul\\u{0}"),
            ("none\u{fffe}\u{ffff}", "none\\u{fffe}\\u{ffff}"),
            ("not\u{34f}seen\u{17b4}\u{1d173}", "not\\u{34f}seen\\u{17b4}\\u{1d173}"),
        ] {
            assert_eq!(printable(attack), shown);
        }
    }

    #[test]
    fn json_stays_the_same_document() {
        let value = serde_json::json!({"a": "\u{9b}31m\u{202e}x\u{e0001}\n\x1b\x7f", "b": 1});
        let document = serde_json::to_string_pretty(&value).unwrap();
        let safe = printable_json(&document);
        let raw =
            |text: &str| text.chars().any(|character| is_harmful(character) && character != '\n');
        assert!(raw(&document) && !raw(&safe), "{safe}");
        let read: serde_json::Value = serde_json::from_str(&safe).unwrap();
        assert_eq!(read, value);
        assert!(matches!(printable_json("{\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        assert_eq!(excerpt("short\n"), "short\n");
        assert_eq!(excerpt(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(excerpt(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
