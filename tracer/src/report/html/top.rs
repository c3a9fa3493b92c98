//! The first screen: the verdict, what failed, why, and what to change.

use maud::{Markup, html};

use super::super::words::{self, Advice, count};
use super::super::{Report, RolloutRow};
use super::time;
use crate::verdict::VerdictOutcome;

/// Reasons and advice that the first screen has room for; the sections below have all.
const MOST_REASONS: usize = 4;

pub(super) fn first_screen(report: &Report) -> Markup {
    let outcome = report.hypothesis.outcome;
    let name = words::outcome_name(outcome);
    html! {
        header {
            p.outcome.(name) data-outcome=(name) {
                strong { (name.to_uppercase()) } " – " (words::outcome(outcome))
            }
            h1 { (words::verdict(report)) }
            div.answers {
                section aria-labelledby="what" { h2 #what { "What failed" } (failed(report)) }
                section aria-labelledby="change" { h2 #change { "What to change" } (change(report)) }
                section aria-labelledby="why" { h2 #why { (why_heading(report)) } (why(report)) }
            }
        }
    }
}

fn failed(report: &Report) -> Markup {
    let requests = &report.requests;
    html! {
        p {
            @if requests.total == 0 {
                "No request ended in this trace of " (format!("{:.0} s", report.clock.duration)) "."
            } @else {
                @match requests.failed {
                    0 => { "None of " (count(requests.total)) " requests" },
                    failed => { strong { (count(failed)) " of " (count(requests.total)) " requests" } },
                }
                " in " (format!("{:.0} s", report.clock.duration)) " failed"
                @if requests.late > 0 {
                    ", " strong { (count(requests.late)) " of them late" } ": when the rollout was over"
                } @else if requests.failed > 0 { ", none of them late" }
                "."
            }
        }
        @for (what, n) in [
            ("answered only after a retransmission", requests.slowed),
            ("answered after more than 1 s of waiting for the name", requests.slow_names),
            ("not over when the trace ended", requests.unfinished),
        ] {
            @if n > 0 { p { (count(n)) " " (what) "." } }
        }
        @for rollout in report.rollouts.iter().take(3) { p { (rolled(rollout)) } }
        @if report.rollouts.len() > 3 { p { "and " (report.rollouts.len() - 3) " more rollouts" } }
        @if report.rollouts.is_empty() { p { "No rollout was seen." } }
        @if let Some(late) = words::late(report) { p { (words::capital(&late)) "." } }
    }
}

fn rolled(rollout: &RolloutRow) -> Markup {
    let at = |what: &str, time: Option<f64>| match time {
        Some(time) => format!("{what} at {}", time::at(time)),
        None => format!("{what} not seen"),
    };
    html! {
        "Rollout of " (rollout.deployment) ": " (at("started", rollout.started)) ", "
        (at("complete", rollout.finished)) "."
    }
}

fn why_heading(report: &Report) -> &'static str {
    match report.hypothesis.outcome {
        VerdictOutcome::Supported => "Why",
        VerdictOutcome::Inconclusive => "What is missing",
        VerdictOutcome::Refuted | VerdictOutcome::NotObserved => "How that is known",
    }
}

fn why(report: &Report) -> Markup {
    if report.hypothesis.outcome == VerdictOutcome::Supported {
        let of = &report.contrast;
        let met = of.stale_failed + of.stale_ok;
        return html! {
            p { (words::stale_entry(report)) }
            @if met > 0 {
                p {
                    "After the rollout " strong { (count(of.stale_failed)) " of " (count(met)) }
                    " connects that met a stale entry failed, and " strong { (count(of.other_failed)) " of "
                    (count(of.other_failed + of.other_ok)) } " others."
                    @if report.hypothesis.proven == Some(true) {
                        " " strong { "Proven: " } "where stale entries were taken away on purpose, the failures ended."
                    }
                    @if of.stale_ok > 0 { " " a href="#survived" { "Why " (count(of.stale_ok)) " did not" } }
                }
            }
        };
    }
    let reasons = &report.hypothesis.reasons;
    html! {
        ul { @for reason in reasons.iter().take(MOST_REASONS) { li { (reason) } } }
        (super::more(reasons.len(), MOST_REASONS))
    }
}

fn change(report: &Report) -> Markup {
    let advice = words::advice(report);
    html! {
        @if advice.is_empty() {
            p { "Nothing follows from what this trace shows." }
        } @else {
            ul { @for advice in &advice { li { (brief(advice)) } } }
            p { a href="#do" { "How, and what it does" } }
        }
    }
}

/// What to do, in a line.
fn brief(advice: &Advice) -> Markup {
    html! {
        @match advice {
            Advice::SleepBeforeStop { rules_lag } => {
                "Give the pods a " strong { "preStop sleep of 5\u{a0}s" } ": old pods must answer until every node's \
                 rules have forgotten them, which took up to " (format!("{rules_lag:.2} s")) " here."
            },
            Advice::Drain => {
                strong { "Drain" } " on SIGTERM: finish the requests in hand before exiting."
            },
            Advice::ShortenTimer { .. } => {
                "If the pods can't change: a " strong { "shorter SYN_SENT timer" } " on the client's nodes ends it \
                 sooner."
            },
        }
    }
}
