//! Folding of lines at a terminal: they are broken between words.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// The narrowest width to which lines are folded. Narrower terminals break them by themselves.
const MIN_WIDTH: usize = 40;

/// How many characters a line of this terminal has; `None` if this is no terminal, or it doesn't say.
pub fn terminal_width(terminal: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// The text, broken between words into lines of at most `width` characters, as far as that is possible. The first line is
/// indented by `first` characters, the others by `rest`. Without a width there is one line.
pub fn folded(text: &str, width: Option<usize>, first: usize, rest: usize) -> String {
    let [first, rest] = [first, rest].map(|indent| " ".repeat(indent));
    let Some(width) = width else { return format!("{first}{text}") };
    let options = textwrap::Options::new(width.max(MIN_WIDTH))
        .initial_indent(&first)
        .subsequent_indent(&rest)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options)
}

/// How many columns the text takes at a terminal.
pub fn columns(text: &str) -> usize {
    textwrap::core::display_width(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_copied_stays_in_one_piece() {
        let path = "/home/jane/".to_owned() + &"x".repeat(60);
        assert_eq!(folded(&format!("in {path}"), Some(50), 0, 2), format!("in\n  {path}"));
        assert_eq!(folded("a pipe has no width", None, 1, 2), " a pipe has no width");
    }
}
