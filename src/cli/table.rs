//! A table for people at a terminal, if it is wide enough.

use clap::builder::styling::Style;

use super::session::{CommandOutput, HEADING, PLAIN};
use messages::folding::{columns, folded};
use messages::printable::printable;

/// The gap between two columns, in characters.
const GAP: usize = 2;
/// The least width of the last column, if its cells need as much. It is folded where the terminal ends.
const LEAST_LAST: usize = 20;

/// Rows with a cell for each heading. A column in which all cells are empty isn't shown.
pub(super) struct Table<const N: usize> {
    headings: [&'static str; N],
    rows: Vec<Row<N>>,
}

/// A row's cells, which are fit for a terminal, and their style.
struct Row<const N: usize> {
    style: Style,
    cells: [String; N],
    /// Lines below the row, which are fit for a terminal.
    notes: Vec<String>,
}

/// A column that is shown.
#[derive(Clone, Copy)]
struct Column {
    /// The place of the column's cell in each row.
    index: usize,
    /// The width of the column, in characters.
    width: usize,
}

impl<const N: usize> Table<N> {
    /// A table with these headings, which are shown in capitals.
    pub(super) fn new(headings: [&'static str; N]) -> Self {
        Self { headings, rows: Vec::new() }
    }

    /// Adds a row. The cells need not be fit for a terminal.
    pub(super) fn add(&mut self, style: Style, cells: [String; N]) {
        let cells = cells.map(|cell| printable(&cell).into_owned());
        self.rows.push(Row { style, cells, notes: Vec::new() });
    }

    /// Adds a row with lines below it. The lines must be fit for a terminal already; the cells need not be.
    pub(super) fn add_with_notes(&mut self, cells: [String; N], notes: Vec<String>) {
        let cells = cells.map(|cell| printable(&cell).into_owned());
        self.rows.push(Row { style: PLAIN, cells, notes });
    }

    /// The table's lines, in the styles that the output can show; `None` if it is too wide for the terminal, or if there is
    /// no terminal.
    pub(super) fn shown(&self, output: &CommandOutput) -> Option<String> {
        let width = output.width()?;
        let lines = self.lines(Some(width), |style, text| output.paint(style, text))?;
        Some(lines.iter().map(|line| format!("{line}\n")).collect())
    }

    /// The table's lines without styles, for standard error; `None` if the table is wider than this.
    pub(super) fn plain(&self, width: Option<usize>) -> Option<String> {
        Some(self.lines(width, |_, text| text.to_owned())?.join("\n"))
    }

    fn lines(
        &self,
        width: Option<usize>,
        paint: impl Fn(Style, &str) -> String,
    ) -> Option<Vec<String>> {
        let columns = self.columns();
        let (last, others) = columns.split_last()?;
        let before_last: usize = others.iter().map(|column| column.width + GAP).sum();
        if width.is_some_and(|width| width < before_last + last.width.min(LEAST_LAST)) {
            return None;
        }
        let line = |style, cells: &[&str]| {
            let before = padded(cells, others);
            let end = cells.get(last.index).copied().unwrap_or_default();
            let end = folded(end, width, before_last, before_last);
            let text = format!("{before}{}", end.trim_start());
            paint(style, text.trim_end())
        };
        let headings = self.headings.map(str::to_uppercase);
        let mut lines = vec![line(HEADING, &headings.each_ref().map(String::as_str))];
        for row in &self.rows {
            lines.push(line(row.style, &row.cells.each_ref().map(String::as_str)));
            lines.extend_from_slice(&row.notes);
        }
        Some(lines)
    }

    /// The columns that have anything to show, as wide as their widest cell.
    fn columns(&self) -> Vec<Column> {
        let mut shown = Vec::new();
        for (index, heading) in self.headings.iter().enumerate() {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(index));
            let widest = cells.map(|cell| columns(cell)).max().unwrap_or_default();
            if widest > 0 {
                shown.push(Column { index, width: widest.max(columns(heading)) });
            }
        }
        shown
    }
}

/// The cells of these columns, each followed by the gap.
fn padded(cells: &[&str], shown: &[Column]) -> String {
    let mut text = String::new();
    for column in shown {
        let cell = cells.get(column.index).copied().unwrap_or_default();
        let padding = column.width.saturating_sub(columns(cell)) + GAP;
        text += cell;
        text += &" ".repeat(padding);
    }
    text
}
