//! The failures: their causes in words, what the client saw, and each one's story.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Serialize;

use super::super::pictures::STORIES_OF_A_CAUSE;
use super::super::words::{self, count};
use super::super::{EarlyLate, FailureRow, Report, Story};
use super::family::Family;
use super::{Cell, number, section, table};
use crate::verdict::Cause;

pub(super) fn all(report: &Report) -> Markup {
    if report.requests.failed == 0 && report.failures == EarlyLate::default() {
        return html! {};
    }
    let content = html! {
        (by_name(&["cause", "early", "late", "what it means"], &report.failures, |cause| {
            (cause.name(), words::explain(cause))
        }))
        h3 { "What the client saw" }
        (by_name(&["symptom", "early", "late", "what it means"], &report.symptoms, |symptom| {
            (symptom.name(), words::symptom(symptom))
        }))
        (stories(report))
    };
    section("failures", "The failures", &content)
}

/// Counts by name, early and late side by side, each with its sentence.
fn by_name<K: Ord + Copy + Serialize>(
    head: &[&str],
    counts: &EarlyLate<K>,
    words: impl Fn(K) -> (&'static str, &'static str),
) -> Markup {
    let mut names: Vec<K> = counts.early.keys().chain(counts.late.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let of = |counts: &BTreeMap<K, u64>, name: K| counts.get(&name).copied().unwrap_or(0);
    let rows = names.into_iter().map(|name| {
        let (text, meaning) = words(name);
        vec![
            Cell::Text(html! { code { (text) } }),
            number(of(&counts.early, name)),
            number(of(&counts.late, name)),
            Cell::Text(html! { (meaning) }),
        ]
    });
    table(head, rows)
}

fn stories(report: &Report) -> Markup {
    let told = &report.pictures.stories;
    if told.is_empty() {
        return html! {};
    }
    let mut groups: BTreeMap<(bool, Cause), Vec<(usize, &Story)>> = BTreeMap::new();
    for (index, story) in told {
        let Some(failure) = report.failed.get(*index) else { continue };
        groups.entry((!failure.late, failure.cause)).or_default().push((*index, story));
    }
    html! {
        h3 #stories { "Step by step" }
        p.faint {
            "Each failed request with the packets behind it; # is the event's place in the trace."
            @if told.len() < report.failed.len() {
                " Told are the first " (STORIES_OF_A_CAUSE) " of each cause, the late ones first: "
                (count(told.len() as u64)) " of " (count(report.failed.len() as u64)) "."
            }
        }
        @for ((early, cause), stories) in &groups {
            div.group {
                h4 {
                    (count(stories.len() as u64)) " " @if *early { "early" } @else { "late" } ": "
                    (super::family::cause(*cause))
                }
                div.stories {
                    @for (index, story) in stories { (one(*index, &report.failed[*index], story)) }
                }
            }
        }
    }
}

fn one(index: usize, failure: &FailureRow, story: &Story) -> Markup {
    let family = Family::of(failure.cause);
    html! {
        details.story id=(format!("story-{index}")) data-request=(failure.request.0) {
            summary {
                svg.swatch viewBox="-10 -10 20 20" aria-hidden="true" {
                    g class=(format!("mark {}", family.class())) { (family.shape(0, 0)) }
                }
                span.number { (super::figures::when(failure.start)) }
                " request " (failure.request.0)
                @if let Some(source) = failure.source { ", port " (source.port()) }
                ": " (failure.symptom)
                @if let Some(pod) = &failure.pod { " (" (pod) ")" }
            }
            ol.steps {
                @for step in &story.steps {
                    li {
                        span.number { (format!("{:.3} s", step.time)) }
                        span.seq { @if let Some(seq) = step.seq { (seq) } }
                        span { (step.text) }
                    }
                }
            }
        }
    }
}
