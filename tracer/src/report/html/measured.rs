//! What was not seen, how it was measured, and what to do about it.

use maud::{Markup, PreEscaped, html};

use super::super::Report;
use super::super::words::{self, Advice, count};
use super::{number, seconds, section, table, text, unfold};
use crate::verdict::Cause;

/// Losses that are listed.
const MOST_LOSSES: usize = 50;
/// Sysctls that are listed: ten for each namespace of a node.
const MOST_SYSCTLS: usize = 500;

pub(super) fn all(report: &Report) -> Markup {
    html! {
        (section("lost", "What was lost or not seen", &lost(report)))
        (section("measured", "How it was measured", &measured(report)))
        (section("do", "What to do about it", &deeds(report)))
    }
}

fn lost(report: &Report) -> Markup {
    let unseen = report.hooks.iter().filter(|hook| !hook.attached || hook.note.is_some());
    let rows = report.losses.iter().take(MOST_LOSSES).map(|loss| {
        vec![
            text(&loss.source),
            if loss.at_least {
                text(format!("at least {}", count(loss.count)))
            } else {
                number(loss.count)
            },
            seconds(Some(loss.from), 1),
            seconds(Some(loss.to), 1),
        ]
    });
    html! {
        @if report.losses.is_empty() {
            p { "Nothing was lost." }
        } @else {
            (table(&["where", "events", "from", "until"], rows))
            (super::more(report.losses.len(), MOST_LOSSES))
        }
        ul {
            @for hook in unseen {
                li {
                    code { (hook.name) }
                    @if !hook.attached { " was not attached" }
                    @if let Some(note) = &hook.note { ": " (note) }
                }
            }
            @for note in &report.notes { li { (note) } }
        }
    }
}

fn measured(report: &Report) -> Markup {
    let origin = &report.origin;
    let hooks: Vec<&str> =
        report.hooks.iter().filter(|it| it.attached).map(|it| it.name.as_str()).collect();
    let sysctls =
        origin.sysctls.iter().take(MOST_SYSCTLS).map(|(name, value)| vec![text(name), text(value)]);
    let counters = report.counters.iter().map(|(name, n)| vec![text(name), number(*n)]);
    let closes = &report.closes;
    html! {
        dl {
            dt { "command" } dd { code { (origin.command) } }
            @if let Some(seed) = origin.seed { dt { "seed" } dd { (seed) } }
            dt { "tracer" } dd { (origin.tracer) }
            @if !origin.kernel.is_empty() { dt { "kernel" } dd { "Linux " (origin.kernel) } }
            @if !origin.node.is_empty() { dt { "node" } dd { (origin.node) } }
            dt { "hooks" }
            dd { @if hooks.is_empty() { "none" } @else { (hooks.join(", ")) } }
            dt { "trace" }
            dd {
                (format!("{:.1} s from Unix time {:.3}", report.clock.duration, report.clock.began_unix))
                @if report.clock.error >= 1e-6 {
                    ", known to " (words::duration(report.clock.error))
                }
            }
            @if closes.client + closes.server > 0 {
                dt { "closed first" }
                dd {
                    "the server on " (count(closes.server)) " connections, the client on "
                    (count(closes.client))
                }
            }
        }
        @if !origin.sysctls.is_empty() {
            (unfold("Sysctls", &html! {
                (table(&["name", "value"], sysctls))
                (super::more(origin.sysctls.len(), MOST_SYSCTLS))
            }))
        }
        @if !report.counters.is_empty() {
            (unfold("What was done with the events", &table(&["what", "count"], counters)))
        }
    }
}

fn deeds(report: &Report) -> Markup {
    let advice = words::advice(report);
    html! {
        @if advice.is_empty() { p { "Nothing follows from what this trace shows." } }
        @for advice in &advice {
            @match advice {
                Advice::SleepBeforeStop { .. } => (sleep(report, advice)),
                Advice::Drain => { h3 { "Drain" } p { (capital(advice)) "." } },
                Advice::ShortenTimer { .. } => (timer(report, advice)),
            }
        }
        @if let Some(figures) = &report.pictures.intervention {
            h3 { "Measured here" }
            p { (figures) }
        }
    }
}

fn sleep(report: &Report, advice: &Advice) -> Markup {
    let snippet = "lifecycle:\n  preStop:\n    sleep:\n      seconds: 5";
    let lags: Vec<String> = report
        .pods
        .iter()
        .filter_map(|pod| Some(format!("{} {:.2} s", pod.name, pod.rules_lag?)))
        .collect();
    html! {
        h3 { "preStop sleep" }
        p { (capital(advice)) "." }
        pre { code { (PreEscaped(snippet)) } }
        p {
            "In each container of the Deployment's pod template, from Kubernetes 1.30 on; before that, an "
            code { "exec" } " of " code { "sleep 5" } ". It counts towards "
            code { "terminationGracePeriodSeconds" } "."
        }
        @if !lags.is_empty() {
            p.faint {
                "Measured here, the rules' lag after each pod was gone: "
                (lags.iter().take(10).cloned().collect::<Vec<_>>().join(", "))
                @if lags.len() > 10 { " and " (lags.len() - 10) " more" }
                "."
            }
        }
    }
}

fn timer(report: &Report, advice: &Advice) -> Markup {
    let ages = report
        .failed
        .iter()
        .filter(|failure| failure.late && failure.cause == Cause::StaleEntryReuse)
        .filter_map(|failure| failure.entry_age);
    let (older, all) =
        ages.fold((0_u64, 0_u64), |(older, all), age| (older + u64::from(age > 30.0), all + 1));
    html! {
        h3 { "Shorter timer" }
        p { (capital(advice)) "." }
        pre { code { "sysctl -w net.netfilter.nf_conntrack_tcp_timeout_syn_sent=30" } }
        @if all > 0 {
            p.faint {
                "Measured here: " (count(older)) " of " (count(all))
                " late failures of this kind met an entry that was older than 30 s."
            }
        }
    }
}

fn capital(advice: &Advice) -> String {
    let text = advice.to_string();
    if text.starts_with("preStop") { text } else { words::capital(&text) }
}
