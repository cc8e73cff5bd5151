//! Columns that line up.

/// A table: a head, rows of as many cells, and lines between the rows that take the whole width.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Column {
    head: &'static str,
    right: bool,
}

#[derive(Debug)]
enum Line {
    Row(Vec<String>),
    Note(String),
}

impl Table {
    /// A table with these heads; a head that starts with `>` belongs to a column of figures.
    pub(crate) fn new(heads: &[&'static str]) -> Table {
        let columns = heads.iter().map(|head| match head.strip_prefix('>') {
            Some(head) => Column { head, right: true },
            None => Column { head, right: false },
        });
        Table {
            columns: columns.collect(),
            lines: Vec::new(),
        }
    }

    /// Appends a row; a cell that is missing is empty.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| printable(&cell)).collect();
        cells.resize(self.columns.len(), String::new());
        self.lines.push(Line::Row(cells));
    }

    /// Appends a line below the last row that is not cut into cells.
    pub(crate) fn note(&mut self, text: &str) {
        self.lines.push(Line::Note(printable(text)));
    }

    /// The whole as text, each line ended.
    pub(crate) fn render(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        let heads: Vec<&str> = self.columns.iter().map(|column| column.head).collect();
        self.push_row(&mut text, &heads, &widths);
        for line in &self.lines {
            match line {
                Line::Row(cells) => {
                    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
                    self.push_row(&mut text, &cells, &widths);
                }
                Line::Note(note) => {
                    text.push_str("  ");
                    text.push_str(note);
                    text.push('\n');
                }
            }
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .map(|column| width(column.head))
            .collect();
        for line in &self.lines {
            if let Line::Row(cells) = line {
                for (widest, cell) in widths.iter_mut().zip(cells) {
                    *widest = (*widest).max(width(cell));
                }
            }
        }
        widths
    }

    fn push_row(&self, text: &mut String, cells: &[&str], widths: &[usize]) {
        let mut line = String::new();
        for ((column, cell), widest) in self.columns.iter().zip(cells).zip(widths) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(widest.saturating_sub(width(cell)));
            if column.right {
                line.push_str(&padding);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&padding);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// Lines of `label: value`, the values one below the other.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let widest = pairs
        .iter()
        .map(|(label, _)| width(label))
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for (label, value) in pairs {
        let padding = " ".repeat(widest - width(label));
        let line = format!("{label}:{padding} {}", printable(value));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `text` without what would move a terminal's cursor: names come from files and from other people.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">COUNT", "HINT"]);
        table.row(["a".into(), "1000".into(), String::new()]);
        table.note("a line of its own that is wider than the table");
        table.row(["longer".into(), "7".into(), "x".into()]);
        let expected = "\
NAME    COUNT  HINT
a        1000
  a line of its own that is wider than the table
longer      7  x
";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        let mut table = Table::new(&["NAME"]);
        table.row(["\u{1b}[2Jevil\n".into()]);
        assert_eq!(table.render(), "NAME\n\u{fffd}[2Jevil\u{fffd}\n");
        assert_eq!(pairs(&[("a", "\u{7}".into())]), "a: \u{fffd}\n");
    }

    #[test]
    fn missing_cells_are_empty() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["x".into()]);
        assert_eq!(table.render(), "A  B\nx\n");
    }
}
