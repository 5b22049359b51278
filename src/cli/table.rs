//! Rows of cells, aligned.

#![forbid(unsafe_code)]

use super::style::{Palette, Style};
use crate::printable::printable;
use crate::report;

/// Between two columns, and before the first.
const GAP: usize = 2;

/// In characters. Without a limit for the whole table, longer cells don't widen their column.
const WIDEST_CELL: usize = 36;

/// A column's heading, and the width in characters below which it is never narrowed.
pub(super) type Heading<'a> = (&'a str, usize);

/// A line of a table.
pub(super) enum TableLine {
    /// A text that ignores the columns.
    Across {
        text: String,
        style: Option<Style>,
    },
    Row(Vec<Cell>),
}

impl TableLine {
    pub(super) fn across(text: impl Into<String>, style: Option<Style>) -> Self {
        Self::Across { text: text.into(), style }
    }
}

/// A text and its style.
pub(super) struct Cell {
    text: String,
    style: Option<Style>,
}

impl Cell {
    /// Makes the text printable.
    pub(super) fn new(text: &str, style: Option<Style>) -> Self {
        Self { text: printable(text).into_owned(), style }
    }
}

/// Lays out the lines, below the headings if there is a row among them, without blanks at the ends
/// of lines. To fit into `columns`, the widest cells are shortened in their middle, and the last one
/// of a row is folded.
pub(super) fn table(
    headings: &[Heading<'_>],
    lines: &[TableLine],
    palette: Palette,
    columns: Option<usize>,
) -> String {
    let rows = lines.iter().filter_map(|line| match line {
        TableLine::Row(cells) => Some(cells),
        TableLine::Across { .. } => None,
    });
    let mut widths: Vec<usize> = headings.iter().map(|(it, _)| width(it)).collect();
    let mut has_rows = false;
    for cells in rows {
        has_rows = true;
        for (cell, widest) in cells.iter().zip(&mut widths) {
            let own = width(&cell.text);
            if columns.is_some() || own <= WIDEST_CELL {
                *widest = own.max(*widest);
            }
        }
    }
    if let Some(columns) = columns {
        narrow(&mut widths, headings, columns);
    }
    let headings = headings
        .iter()
        .map(|(heading, _)| Cell { text: (*heading).to_owned(), style: Some(Style::Heading) });
    let headings: Vec<_> = headings.collect();
    let mut text = String::new();
    if has_rows {
        row(&headings, &widths, columns, palette, &mut text);
    }
    for line in lines {
        match line {
            TableLine::Across { text: across, style } => {
                let across = printable(across);
                let across = match columns {
                    Some(columns) => report::hanging(&across, columns),
                    None => across.into_owned(),
                };
                text.push_str(
                    &style.map_or_else(|| across.clone(), |style| palette.paint(style, &across)),
                );
                text.push('\n');
            }
            TableLine::Row(cells) => row(cells, &widths, columns, palette, &mut text),
        }
    }
    text
}

/// How wide the rows are if nothing is shortened.
pub(super) fn full_width(headings: &[Heading<'_>], lines: &[TableLine]) -> usize {
    let columns = headings.iter().enumerate();
    let widths = columns.map(|(place, (heading, _))| {
        let cells = lines.iter().filter_map(|line| match line {
            TableLine::Row(cells) => cells.get(place),
            TableLine::Across { .. } => None,
        });
        let widest = cells.map(|cell| width(&cell.text)).max();
        GAP + widest.unwrap_or_default().max(width(heading))
    });
    widths.sum()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Narrows the widest column until all fit, but none below its heading and its least width.
fn narrow(widths: &mut [usize], headings: &[Heading<'_>], columns: usize) {
    while widths.iter().map(|it| it + GAP).sum::<usize>() > columns {
        let wide = widths.iter_mut().zip(headings);
        let wide = wide.filter(|(it, (heading, least))| **it > width(heading).max(*least));
        let Some((widest, _)) = wide.max_by_key(|(it, _)| **it) else {
            return;
        };
        *widest -= 1;
    }
}

fn row(
    cells: &[Cell],
    widths: &[usize],
    columns: Option<usize>,
    palette: Palette,
    text: &mut String,
) {
    let mut gap = GAP;
    let mut begin = 0;
    for (place, (cell, column)) in cells.iter().zip(widths).enumerate() {
        let shown = match columns {
            Some(_) if place + 1 == widths.len() => {
                let margin = format!("\n{}", " ".repeat(begin + gap));
                report::folded(&cell.text, *column).replace('\n', &margin)
            }
            Some(_) => shortened(&cell.text, *column),
            None => cell.text.clone(),
        };
        let own = width(&shown).min(*column);
        if !shown.is_empty() {
            text.push_str(&" ".repeat(gap));
            begin += gap + own;
            text.push_str(
                &cell.style.map_or_else(|| shown.clone(), |it| palette.paint(it, &shown)),
            );
            gap = 0;
        }
        gap += column - own + GAP;
    }
    text.push('\n');
}

/// Shortens a longer text to `limit` characters, in its middle.
fn shortened(text: &str, limit: usize) -> String {
    let length = width(text);
    if length <= limit {
        return text.to_owned();
    }
    let kept = limit.saturating_sub(1);
    let head: String = text.chars().take(kept - kept / 2).collect();
    let tail: String = text.chars().skip(length - kept / 2).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let cells = |texts: &[&str]| {
            TableLine::Row(texts.iter().map(|text| Cell::new(text, None)).collect())
        };
        let lines = [
            TableLine::across("a heading\x07", None),
            cells(&["2", "größe", "RSA"]),
            cells(&["0x0102", "", ""]),
            cells(&["", &"x".repeat(40), "y"]),
            cells(&[&"0".repeat(40), "z", "y"]),
        ];
        let palette = Palette::for_standard_output();
        let (wide, long) = ("x".repeat(40), "0".repeat(40));
        let headings = [("ID", 0), ("LABEL", 0), ("KIND", 0)];
        assert_eq!(
            table(&headings, &lines, palette, None),
            format!(
                "  ID      LABEL  KIND\n\
                 a heading\\u{{7}}\n  \
                   2       größe  RSA\n  \
                   0x0102\n          \
                           {wide}  y\n  \
                   {long}  z      y\n"
            )
        );
    }

    #[test]
    fn columns_fit_into_the_width_that_there_is() {
        let row = |texts: &[&str]| {
            TableLine::Row(texts.iter().map(|text| Cell::new(text, None)).collect())
        };
        let lines = [
            TableLine::across("  help: words that take more than there is", None),
            row(&["0x0123456789", "", "größe"]),
            row(&["1", "a label that is long", "one note, and another one"]),
        ];
        let palette = Palette::for_standard_output();
        let headings = [("ID", 0), ("LABEL", 0), ("NOTES", 12)];
        let all = full_width(&headings, &lines);
        let whole = table(&headings, &lines, palette, Some(all));
        assert!(whole.contains("0x0123456789") && whole.contains("one note, and another one\n"));
        let shown = table(&[("ID", 0), ("LABEL", 0), ("NOTES", 12)], &lines, palette, Some(36));
        assert_eq!(
            shown,
            "  ID         LABEL      NOTES\n  \
               help: words that take more than\n    \
                 there is\n  \
               0x01…6789             größe\n  \
               1          a la…long  one note,\n                        \
                                       and another\n                        \
                                       one\n"
        );
        let headings = [("ID", 0), ("LABEL", 0), ("NOTES", 12)];
        assert!(table(&headings, &lines, palette, Some(1)).contains("LABEL"));
    }
}
