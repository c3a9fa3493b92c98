//! What the page says and what it must never do, of reports of every kind.

use sha2::{Digest, Sha256};

use super::super::pictures::{AttemptDot, PathStop, StopKind, SynPath};
use super::super::{FailureRow, Report, Story, StoryStep, fixture, words};
use super::{SCRIPT, SCRIPT_HASH, STYLE, render};
use crate::model::{RequestId, Seq};

/// A report whose every picture has something to show.
fn full() -> Report {
    let mut report = fixture::supported();
    report.pictures.attempts = (0..100)
        .map(|nth| AttemptDot {
            start: f64::from(nth) * 1.7,
            port: 32_768 + nth as u16 * 280,
            answered: nth % 7 > 0,
            stands_for: 3,
        })
        .collect();
    report.pictures.stories.insert(0, report.stories[0].clone());
    let stop = |kind, place: &str| PathStop {
        kind,
        place: place.to_owned(),
        what: "it passes".to_owned(),
        time: Some(1.0),
        seq: Some(Seq(7)),
    };
    report.pictures.path = Some(SynPath {
        request: RequestId(3),
        stops: vec![stop(StopKind::Client, "client"), stop(StopKind::End, "client")],
    });
    report
}

#[test]
fn the_page_begins_with_the_verdict_and_what_to_change() {
    for report in fixture::all() {
        let page = render(&report);
        let body = &page[page.find("<main>").expect("a body")..];
        let place = |text: &str| body.find(text).unwrap_or_else(|| panic!("{text} is not there"));
        let verdict = maud::html! { (words::verdict(&report)) }.into_string();
        assert!(place(&verdict) < place("What failed"));
        assert!(place("What failed") < place("What to change"));
        assert!(place("What to change") < place("What was lost or not seen"));
        assert!(place("How it was measured") < place("What to do about it"));
    }
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    assert_eq!(render(&full()), render(&full()));
}

#[test]
fn nothing_is_asked_of_a_network() {
    for report in fixture::all().iter().chain([&full()]) {
        let page = render(report);
        for forbidden in ["http://", "https://", "src=", "@import", "url(", "<link", "<iframe"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn only_this_script_may_run() {
    let hash = Sha256::digest(SCRIPT.as_bytes());
    let mut base64 = String::new();
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in hash.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..4 {
            base64.push(match digit <= three.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]),
                false => '=',
            });
        }
    }
    assert_eq!(base64, SCRIPT_HASH, "the script has changed: this is its hash");
}

/// Every text of the report that can come from a trace.
fn poisoned(evil: &str) -> Report {
    let mut report = full();
    let text = || evil.to_owned();
    for pod in &mut report.pods {
        pod.name = text();
    }
    for rollout in &mut report.rollouts {
        rollout.deployment = text();
    }
    for at in &mut report.entries.pointing_at {
        at.pod = Some(text());
    }
    for failure in &mut report.failed {
        failure.pod = Some(text());
        failure.why = text();
    }
    for story in report.pictures.stories.values_mut() {
        *story = Story {
            title: text(),
            steps: vec![StoryStep { time: 1.0, text: text(), seq: None }],
            ..story.clone()
        };
    }
    for stop in report.pictures.path.iter_mut().flat_map(|path| &mut path.stops) {
        stop.place = text();
        stop.what = text();
    }
    report.pictures.intervention = Some(text());
    report.survived = fixture::refuted().survived;
    report.survived[0].why = text();
    report.hypothesis.reasons = vec![text()];
    report.rivals[0].reasons = vec![text()];
    report.hooks[0].note = Some(text());
    report.losses = fixture::inconclusive().losses;
    report.losses[0].source = text();
    report.notes = vec![text()];
    report.counters = [(text(), 1)].into();
    report.origin.command = text();
    report.origin.kernel = text();
    report.origin.node = text();
    report.origin.tracer = text();
    report.origin.sysctls = [(text(), text())].into();
    report
}

#[test]
fn a_pod_called_script_is_harmless() {
    let harmless = render(&poisoned("web"));
    for evil in ["<script>alert(1)</script>", "\"><img onerror=x>", "</style></title>", "&lt;"] {
        let page = render(&poisoned(evil));
        assert!(page.contains("&lt;script&gt;") || !evil.contains("<script>"));
        assert!(!page.contains(evil) || evil == "&lt;", "{evil} is on the page as it is");
        let tags = |page: &str| page.matches('<').count();
        assert_eq!(tags(&page), tags(&harmless), "{evil} made or broke an element");
    }
}

#[test]
fn a_million_failures_make_a_page_of_a_few_megabytes() {
    let mut report = full();
    let row = report.failed[0].clone();
    report.failed = (0..1_000_000)
        .map(|nth| FailureRow {
            request: RequestId(nth),
            start: (nth % 170_000) as f64 / 1000.0,
            ..row.clone()
        })
        .collect();
    let entry = report.entries.list[0].clone();
    report.entries.list = vec![entry; 100_000];
    report.requests.failed = 1_000_000;
    let page = render(&report);
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    assert!(page.contains("failed requests are drawn"));
    assert!(page.contains("1 of 1,000,000"), "how many stories are told is said");
}

/// The colours of a scheme by their names.
fn colors(scheme: &str) -> Vec<(&str, [f64; 3])> {
    let lines = scheme.lines().filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"));
    lines
        .map(|(name, hex)| {
            let part = |at: usize| {
                let byte = u8::from_str_radix(&hex[at..at + 2], 16).expect("two hex digits");
                let share = f64::from(byte) / 255.0;
                if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
            };
            (name, [part(0), part(2), part(4)])
        })
        .collect()
}

/// WCAG 2's contrast of two colours.
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |[r, g, b]: [f64; 3]| 0.2126 * r + 0.7152 * g + 0.0722 * b;
    let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
    a.max(b) / a.min(b)
}

#[test]
fn letters_and_marks_stand_out_in_both_schemes() {
    let schemes: Vec<&str> = STYLE.split(":root {").skip(1).take(2).collect();
    assert_eq!(schemes.len(), 2);
    for scheme in schemes {
        let colors = colors(scheme.split('}').next().expect("a block"));
        let color = |name: &str| {
            let found = colors.iter().find(|(known, _)| *known == name);
            found.unwrap_or_else(|| panic!("{name} is not in both schemes")).1
        };
        for ground in ["ground", "raised"] {
            for letters in ["text", "faint", "link"] {
                let contrast = contrast(color(letters), color(ground));
                assert!(contrast >= 4.5, "{letters} on {ground}: {contrast:.2}");
            }
        }
        let marks =
            ["reused", "rules", "other", "survivor", "bar", "answered", "unanswered", "axis"];
        for (mark, ground) in marks.iter().map(|mark| (*mark, "ground")).chain([
            ("reused", "rollout"),
            ("rules", "rollout"),
            ("edge", "ground"),
            ("pod", "rollout"),
        ]) {
            let contrast = contrast(color(mark), color(ground));
            assert!(contrast >= 3.0, "{mark} on {ground}: {contrast:.2}");
        }
    }
}
