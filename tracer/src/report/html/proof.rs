//! The proof: reasons, the contrast, the exposure, the model, the rivals, and what speaks against it.

use maud::{Markup, html};

use super::super::Report;
use super::super::words::{self, count};
use super::{Cell, number, section, table, text};

/// Connects that met a stale entry and did not fail: so many are told.
const MOST_SURVIVORS: usize = 50;

pub(super) fn all(report: &Report) -> Markup {
    let content = html! {
        ul { @for reason in &report.hypothesis.reasons { li { (reason) } } }
        @match report.hypothesis.proven {
            Some(true) => p { strong { "Proven: " } "an intervention changed the outcome." },
            Some(false) => p { "An intervention was made, and it proved nothing." },
            None => {},
        }
        (contrast(report))
        (exposure(report))
        (survivors(report))
        (rivals(report))
    };
    section("proof", "Why this verdict", &content)
}

fn contrast(report: &Report) -> Markup {
    let of = &report.contrast;
    if of.stale_failed + of.stale_ok + of.other_failed + of.other_ok == 0 {
        return html! {};
    }
    let row = |name: &str, failed: u64, ok: u64| {
        let share = match failed + ok {
            0 => "–".to_owned(),
            all => format!("{:.2} %", failed as f64 / all as f64 * 100.0),
        };
        vec![text(name), number(failed), number(ok), Cell::Number(share)]
    };
    let rows = [
        row("met a stale entry", of.stale_failed, of.stale_ok),
        row("met none", of.other_failed, of.other_ok),
    ];
    html! {
        h3 { "Connects after the rollout" }
        (table(&["", "failed", "answered", "failed of all"], rows.into_iter()))
        @if let Some(p) = of.p_value {
            p {
                "If stale entries made no difference, chance would give such a table "
                @if p < 1e-6 { "less than once in a million times" }
                @else { "with a probability of " (format!("{p:.4}")) }
                " (Fisher's exact test, p = " (format!("{p:.1e}")) ")."
            }
        }
    }
}

fn exposure(report: &Report) -> Markup {
    let exposure = &report.exposure;
    html! {
        @if exposure.attempts > 0 || report.model.is_some() {
            h3 { "How often a stale entry was met" }
            ul {
                li {
                    "Seen: " (count(exposure.attempts)) " connects in the whole trace; "
                    (count(exposure.failed)) " of them failed."
                }
                @if let Some(model) = &report.model {
                    li {
                        "Expected late, by the kernel's way of choosing source ports: "
                        (format!("{:.0} (95 %: {:.0} to {:.0})", model.expected, model.low, model.high))
                        "; it was " (count(model.observed)) "."
                        @if !(model.low..=model.high).contains(&(model.observed as f64)) {
                            " That is outside the range: weak evidence, it changes no verdict."
                        }
                    }
                }
            }
        }
    }
}

fn survivors(report: &Report) -> Markup {
    let rows = report.survived.iter().take(MOST_SURVIVORS).map(|survivor| {
        let seqs: Vec<String> = survivor.evidence.iter().map(ToString::to_string).collect();
        vec![
            Cell::Number(format!("{:.1} s", survivor.start)),
            text(survivor.source.to_string()),
            text(survivor.backend.to_string()),
            Cell::Number(format!("{:.1} s", survivor.entry_age)),
            text(&survivor.why),
            text(seqs.join(" ")),
        ]
    });
    let head = ["start", "client", "entry points at", "its age", "what became of it", "events"];
    html! {
        @if !report.survived.is_empty() {
            h3 #survived { "Met a stale entry and did not fail" }
            (table(&head, rows))
            (super::more(report.survived.len(), MOST_SURVIVORS))
        }
    }
}

fn rivals(report: &Report) -> Markup {
    html! {
        @if !report.rivals.is_empty() {
            h3 { "Other explanations" }
            ul {
                @for rival in &report.rivals {
                    li {
                        (words::hypothesis(rival.name)) ": " strong { (words::outcome_name(rival.outcome)) }
                        @if let Some(share) = rival.share.filter(|share| *share > 0.0) {
                            (format!(", {:.0} % of the late failures", share * 100.0))
                        }
                        @for reason in &rival.reasons { br; span.faint { (reason) } }
                    }
                }
            }
        }
    }
}
