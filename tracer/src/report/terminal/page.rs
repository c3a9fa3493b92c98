//! Lines that fit: wrapping, tables and colour. Knows nothing of reports.

use std::fmt::Write;

use anstyle::AnsiColor;
use textwrap::{Options, WordSplitter};

use super::Style;

/// What a piece of text is, so that colour can say it once more. Nothing is said by colour alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Warning,
}

impl Tone {
    fn style(self) -> anstyle::Style {
        let style = anstyle::Style::new();
        match self {
            Tone::Plain => style,
            Tone::Strong => style.bold(),
            Tone::Faint => style.dimmed(),
            Tone::Good => style.bold().fg_color(Some(AnsiColor::Green.into())),
            Tone::Bad => style.bold().fg_color(Some(AnsiColor::Red.into())),
            Tone::Warning => style.bold().fg_color(Some(AnsiColor::Yellow.into())),
        }
    }
}

/// A piece of text in one tone.
pub(super) type Span = (Tone, String);

/// How a table's column lies and yields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Column {
    /// To the left.
    Left,
    /// To the right, for numbers.
    Right,
    /// To the left, and shortened in its middle where the table is too wide: names differ at their ends.
    Shrinks,
}

/// Between two columns of a table.
const GAP: usize = 2;
/// Narrower than this a shrinking column does not become.
const LEAST: usize = 8;

/// Text that grows line by line. No line is wider than its style says or ends in a space.
pub(super) struct Page {
    style: Style,
    text: String,
}

impl Page {
    pub(super) fn new(style: Style) -> Page {
        Page { style, text: String::new() }
    }

    pub(super) fn width(&self) -> usize {
        self.style.width
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// One line; what does not fit is cut off with an ellipsis.
    pub(super) fn line(&mut self, spans: &[Span]) {
        let mut spans: Vec<Span> =
            spans.iter().map(|(tone, text)| (*tone, printable(text))).collect();
        let length: usize = spans.iter().map(|(_, text)| width(text)).sum();
        if length > self.style.width {
            let mut left = self.style.width - 1;
            for (_, text) in &mut spans {
                *text = text.chars().take(left).collect();
                left -= width(text);
            }
            spans.push((Tone::Faint, "…".to_owned()));
        }
        while let Some((_, text)) = spans.last_mut() {
            text.truncate(text.trim_end().len());
            if !text.is_empty() {
                break;
            }
            spans.pop();
        }
        for (tone, text) in spans {
            if self.style.color && tone != Tone::Plain {
                let style = tone.style();
                // Writing to a String cannot fail.
                let _ = write!(self.text, "{style}{text}{style:#}");
            } else {
                self.text.push_str(&text);
            }
        }
        self.text.push('\n');
    }

    /// An empty line.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// A section's heading, after an empty line.
    pub(super) fn heading(&mut self, text: &str) {
        self.gap();
        self.hanging(&[], Tone::Strong, text);
    }

    /// Wrapped text beside a lead; its further lines begin under its first.
    pub(super) fn hanging(&mut self, lead: &[Span], tone: Tone, text: &str) {
        let indent: usize = lead.iter().map(|(_, text)| width(text)).sum();
        if indent > self.style.width / 2 {
            self.line(lead);
            return self.hanging(&[plain("    ")], tone, text);
        }
        let options =
            Options::new(self.style.width - indent).word_splitter(WordSplitter::NoHyphenation);
        let text = printable(text);
        for (i, line) in textwrap::wrap(&text, options).into_iter().enumerate() {
            let line = (tone, line.into_owned());
            if i == 0 {
                self.line(&[lead, &[line]].concat());
            } else {
                self.line(&[plain(" ".repeat(indent)), line]);
            }
        }
    }

    /// A table, indented by two.
    pub(super) fn table(&mut self, columns: &[Column], rows: &[Vec<Span>]) {
        let mut widths: Vec<usize> = (0..columns.len())
            .map(|i| rows.iter().filter_map(|row| row.get(i)).map(|cell| width(&cell.1)).max())
            .map(|widest| widest.unwrap_or(0))
            .collect();
        loop {
            let total: usize = GAP + widths.iter().sum::<usize>() + GAP * (widths.len() - 1);
            let Some(excess) = total.checked_sub(self.style.width + 1).map(|less| less + 1) else {
                break;
            };
            let widest = (0..columns.len())
                .filter(|i| columns[*i] == Column::Shrinks && widths[*i] > LEAST)
                .max_by_key(|i| widths[*i]);
            let Some(widest) = widest else {
                break;
            };
            // A little at a time, so that two wide columns share what is to be given.
            widths[widest] -= excess.min(4).min(widths[widest] - LEAST);
        }
        for row in rows {
            let mut spans = vec![plain("")];
            for ((column, (tone, text)), room) in columns.iter().zip(row).zip(&widths) {
                let text = shorten(&printable(text), *room);
                let space = " ".repeat(room - width(&text));
                spans.push(plain(" ".repeat(GAP)));
                match column {
                    Column::Right => spans.extend([plain(space), (*tone, text)]),
                    Column::Left | Column::Shrinks => spans.extend([(*tone, text), plain(space)]),
                }
            }
            self.line(&spans);
        }
    }
}

/// A piece of text without a tone.
pub(super) fn plain(text: impl Into<String>) -> Span {
    (Tone::Plain, text.into())
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// The text with its middle cut out where it is longer than `room`.
fn shorten(text: &str, room: usize) -> String {
    let length = width(text);
    if length <= room {
        return text.to_owned();
    }
    let head = room.saturating_sub(1) / 2;
    let tail = room.saturating_sub(1) - head;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Names and notes come from outside: nothing in them may move the cursor or start a new line.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(width: usize) -> Page {
        Page::new(Style { width, color: false })
    }

    #[test]
    fn a_name_keeps_its_two_ends() {
        assert_eq!(shorten("web-7d9c5b8f6d-x2x4q", 11), "web-7…x2x4q");
        assert_eq!(shorten("web", 11), "web");
    }

    #[test]
    fn a_table_too_wide_shrinks_where_it_may() {
        let mut page = page(24);
        let row = |name: &str, n: &str| vec![plain(name), plain(n)];
        page.table(
            &[Column::Shrinks, Column::Right],
            &[row("a-rather-long-name-of-a-pod", "9,999"), row("b", "1")],
        );
        assert_eq!(page.into_text(), "  a-rathe…f-a-pod  9,999\n  b                    1\n");
    }

    #[test]
    fn further_lines_hang_under_the_first() {
        let mut page = page(20);
        page.hanging(&[plain("  - ")], Tone::Plain, "one two three four five");
        assert_eq!(page.into_text(), "  - one two three\n    four five\n");
    }

    #[test]
    fn what_comes_from_outside_cannot_command_the_terminal() {
        let mut page = Page::new(Style { width: 40, color: true });
        page.line(&[plain("pod\u{1b}[2J\r\nname")]);
        assert_eq!(page.into_text(), "pod [2J  name\n");
    }
}
