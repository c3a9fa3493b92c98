//! The report as one page of HTML: no network, light and dark, for a phone and for print. The first screen says what
//! failed, why and what to change; below it are the pictures, each with its numbers, and the stories.
//!
//! Everything that comes from a trace goes through `maud`, which escapes it. The page forbids itself every script but
//! its own, and every request to a network.

mod axis;
mod charts;
mod failures;
mod family;
mod figures;
mod lanes;
mod map;
mod measured;
mod proof;
mod svg;
#[cfg(test)]
mod tests;
mod time;
mod top;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Report, words};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The script's SHA-256 in base64: the only one that the page lets run. A test computes it.
const SCRIPT_HASH: &str = "KbUOwX2FdX6JA8jRdiN9rHj7MfqbPeoGfa8pfd1Lqws=";

/// The page. The same report gives the same bytes.
pub fn render(report: &Report) -> String {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{SCRIPT_HASH}'; \
         base-uri 'none'; form-action 'none'"
    );
    let outcome = words::outcome_name(report.hypothesis.outcome);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { "tracer: " (outcome) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#proof" { "Skip the pictures" }
                main {
                    (top::first_screen(report))
                    (figures::all(report))
                    (proof::all(report))
                    (failures::all(report))
                    (measured::all(report))
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// A part of the page with its heading.
fn section(id: &str, heading: &str, content: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby=(format!("{id}-heading")) {
            h2 id=(format!("{id}-heading")) { (heading) }
            (content)
        }
    }
}

/// A table that unfolds: the numbers behind a picture.
fn unfold(summary: &str, content: &Markup) -> Markup {
    html! {
        details.numbers { summary { (summary) } (content) }
    }
}

/// A table; cells that are numbers are set to the right. It scrolls by itself where it is wider than the page.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    html! {
        div.table tabindex="0" role="group" aria-label=(head.join(", ")) {
            table {
                thead { tr { @for name in head { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for cell in row {
                                @match cell {
                                    Cell::Text(text) => td { (text) },
                                    Cell::Number(text) => td.number { (text) },
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What stands in a table.
enum Cell {
    Text(Markup),
    Number(String),
}

fn text(text: impl AsRef<str>) -> Cell {
    let text = text.as_ref();
    Cell::Text(html! { (text) })
}

fn number(n: u64) -> Cell {
    Cell::Number(words::count(n))
}

fn seconds(time: Option<f64>, digits: usize) -> Cell {
    Cell::Number(time.map_or_else(|| "–".to_owned(), |time| format!("{time:.digits$} s")))
}

/// "and N more", where a list was cut.
fn more(all: usize, shown: usize) -> Markup {
    html! {
        @if all > shown { p.faint { "and " (words::count((all - shown) as u64)) " more" } }
    }
}
