//! Rows of cells, aligned.

#![forbid(unsafe_code)]

use super::style::{Palette, Style};
use crate::printable::printable;

/// In characters; what is longer is cut, except in the first and the last column.
const WIDEST_CELL: usize = 36;

/// A line of a table.
pub(super) enum Line {
    /// Goes across all columns.
    Across {
        text: String,
        style: Option<Style>,
    },
    Row(Vec<Cell>),
}

/// A text and how it is set off.
pub(super) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// Of any text: what could move the cursor becomes visible.
    pub(super) fn new(text: &str, style: Option<Style>) -> Self {
        Self {
            text: printable(text).into_owned(),
            style,
        }
    }
}

/// The lines, below headings if there is a row among them, without spaces at their ends.
pub(super) fn table(headings: &[&str], lines: &[Line], palette: Palette) -> String {
    let last = headings.len().saturating_sub(1);
    let cut = |place: usize, text: &str| match text.char_indices().nth(WIDEST_CELL - 1) {
        Some((end, _)) if place != 0 && place != last && text.chars().count() > WIDEST_CELL => {
            format!("{}…", &text[..end])
        }
        _ => text.to_owned(),
    };
    let mut widths: Vec<usize> = headings.iter().map(|it| it.chars().count()).collect();
    for line in lines {
        let Line::Row(cells) = line else { continue };
        for (place, (cell, width)) in cells.iter().zip(&mut widths).enumerate() {
            *width = (*width).max(cut(place, &cell.text).chars().count());
        }
    }
    let row = |cells: &[(String, Option<Style>)]| {
        let mut text = String::new();
        let mut gap = 2;
        for ((cell, style), width) in cells.iter().zip(&widths) {
            if !cell.is_empty() {
                text.push_str(&" ".repeat(gap));
                text.push_str(&style.map_or_else(|| cell.clone(), |it| palette.paint(it, cell)));
                gap = 0;
            }
            gap += width - cell.chars().count().min(*width) + 2;
        }
        text.push('\n');
        text
    };
    let headings: Vec<_> = headings
        .iter()
        .map(|heading| ((*heading).to_owned(), Some(Style::Heading)))
        .collect();
    let mut text = String::new();
    if lines.iter().any(|line| matches!(line, Line::Row(_))) {
        text.push_str(&row(&headings));
    }
    for line in lines {
        match line {
            Line::Across {
                text: across,
                style,
            } => {
                let across = printable(across);
                text.push_str(&style.map_or_else(
                    || across.clone().into_owned(),
                    |style| palette.paint(style, &across),
                ));
                text.push('\n');
            }
            Line::Row(cells) => {
                let cells: Vec<_> = cells
                    .iter()
                    .enumerate()
                    .map(|(place, cell)| (cut(place, &cell.text), cell.style))
                    .collect();
                text.push_str(&row(&cells));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let cells =
            |texts: &[&str]| Line::Row(texts.iter().map(|text| Cell::new(text, None)).collect());
        let lines = [
            Line::Across {
                text: "a heading\x07".to_owned(),
                style: None,
            },
            cells(&["2", "größe", "RSA"]),
            cells(&["0x0102", "", ""]),
            cells(&["", &"x".repeat(40), "y"]),
        ];
        let palette = Palette::for_standard_output();
        let cut = format!("{}…", "x".repeat(35));
        let gap = " ".repeat(31);
        assert_eq!(
            table(&["ID", "LABEL", "KIND"], &lines, palette),
            format!(
                "  ID      LABEL{gap}  KIND\n\
                 a heading\\u{{7}}\n  \
                   2       größe{gap}  RSA\n  \
                   0x0102\n          \
                           {cut}  y\n"
            )
        );
    }
}
