//! The report for a terminal. The first screen says what failed, why and what to do; the rest is the proof.

mod page;
mod timeline;

use std::collections::BTreeMap;
use std::fmt::Display;

use super::words::{self, count};
use super::{EarlyLate, PodRow, PointingAtRow, Report};
use crate::model::Seq;
use crate::verdict::VerdictOutcome;

use page::{Column, Page, Span, Tone, plain};

use super::Story;
use super::words::duration;

/// How the text should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The widest line, in characters. Less than 40 is taken as 40.
    pub width: usize,
    /// Whether to say things once more by ANSI colours.
    pub color: bool,
}

impl Default for Style {
    fn default() -> Self {
        Style { width: 80, color: false }
    }
}

/// The narrowest page that the tables can live with.
const NARROWEST: usize = 40;
/// Attempts that met a stale entry and did not fail are told one by one up to so many.
const SURVIVORS: usize = 3;

/// The report as text, each line no wider than the style says, without spaces at its end.
pub fn render(report: &Report, style: &Style) -> String {
    let mut page = Page::new(Style { width: style.width.max(NARROWEST), ..*style });
    verdict(&mut page, report);
    summary(&mut page, report);
    timeline::draw(&mut page, report);
    if report.hypothesis.outcome == VerdictOutcome::Supported {
        advice(&mut page, report);
        reasons(&mut page, report);
    } else {
        // What is missing, or what it was instead, comes before what to do.
        reasons(&mut page, report);
        advice(&mut page, report);
    }
    rivals(&mut page, report);
    explanation(&mut page, report);
    failures(&mut page, report);
    contrast(&mut page, report);
    entries(&mut page, report);
    stories(&mut page, report);
    seen(&mut page, report);
    page.into_text()
}

fn verdict(page: &mut Page, report: &Report) {
    let outcome = report.hypothesis.outcome;
    let tone = match outcome {
        VerdictOutcome::Supported => Tone::Bad,
        VerdictOutcome::NotObserved => Tone::Good,
        VerdictOutcome::Refuted | VerdictOutcome::Inconclusive => Tone::Warning,
    };
    let name = words::outcome_name(outcome).to_uppercase();
    page.hanging(&[(tone, name), plain("  ")], Tone::Strong, &words::verdict(report));
}

fn summary(page: &mut Page, report: &Report) {
    let requests = &report.requests;
    page.gap();
    let mut text =
        format!("{} requests in {:.0} s: ", count(requests.total), report.clock.duration);
    text.push_str(&match requests.failed {
        0 => "none failed".to_owned(),
        failed => format!("{} failed, {} of them late", count(failed), count(requests.late)),
    });
    for (n, what) in [
        (requests.slowed, "answered only after a retransmission"),
        (requests.slow_names, "answered after more than 1 s of waiting for the name"),
        (requests.unfinished, "not over when the trace ended"),
    ] {
        if n > 0 {
            text.push_str(&format!("; {} {what}", count(n)));
        }
    }
    page.hanging(&[plain("  ")], Tone::Plain, &text);
    if let Some(names) = &report.names {
        page.hanging(&[plain("  ")], Tone::Plain, &words::names(names));
    }
    for rollout in &report.rollouts {
        let at = |time: Option<f64>, what: &str| {
            time.map_or_else(|| format!("{what} not seen"), |time| format!("{what} at {time:.1} s"))
        };
        let text = format!(
            "rollout of {}: {}, {}",
            rollout.deployment,
            at(rollout.started, "started"),
            at(rollout.finished, "complete")
        );
        page.hanging(&[plain("  ")], Tone::Plain, &text);
    }
    if report.rollouts.is_empty() {
        page.line(&[plain("  no rollout was seen")]);
    }
    if let Some(late) = words::late(report) {
        page.hanging(&[plain("  ")], Tone::Plain, &late);
    }
}

fn reasons(page: &mut Page, report: &Report) {
    if !report.hypothesis.reasons.is_empty() {
        page.heading("Why this verdict");
    }
    bullets(page, &report.hypothesis.reasons);
    if report.hypothesis.proven == Some(true) {
        bullets(page, &["proven: an intervention changed the outcome"]);
    } else if report.hypothesis.proven == Some(false) {
        bullets(page, &["an intervention was made, and it proved nothing"]);
    }
}

fn explanation(page: &mut Page, report: &Report) {
    if report.entries.stale > 0 {
        page.heading("What a stale entry is");
        page.hanging(&[plain("  ")], Tone::Plain, &words::stale_entry(report));
    }
}

fn rivals(page: &mut Page, report: &Report) {
    if !report.rivals.is_empty() {
        page.heading("Other explanations");
    }
    for rival in &report.rivals {
        let lead =
            format!("{}: {}", words::hypothesis(rival.name), words::outcome_name(rival.outcome));
        let share = rival.share.filter(|share| *share > 0.0);
        let share = share.map(|share| format!(", {:.0} % of the late failures", share * 100.0));
        bullets(page, &[format!("{lead}{}", share.unwrap_or_default())]);
        for reason in &rival.reasons {
            page.hanging(&[plain("    ")], Tone::Faint, reason);
        }
    }
}

fn advice(page: &mut Page, report: &Report) {
    let advice = words::advice(report);
    if !advice.is_empty() {
        page.heading("What may help");
    }
    bullets(page, &advice);
}

fn failures(page: &mut Page, report: &Report) {
    if report.requests.failed == 0 && report.failures == EarlyLate::default() {
        return;
    }
    page.heading("Failures: why");
    by_name(page, &report.failures, |cause| (cause.name(), words::cause(cause)));
    page.heading("Failures: what the client saw");
    by_name(page, &report.symptoms, |symptom| (symptom.name(), words::symptom(symptom)));
}

/// A table of counts by name, early and late side by side.
fn by_name<K: Ord + Copy + serde::Serialize>(
    page: &mut Page,
    counts: &EarlyLate<K>,
    words: impl Fn(K) -> (&'static str, &'static str),
) {
    let mut rows = vec![vec![plain(""), faint("early"), faint("late"), plain("")]];
    let of = |counts: &BTreeMap<K, u64>, name: K| counts.get(&name).copied().unwrap_or(0);
    let mut names: Vec<K> = counts.early.keys().chain(counts.late.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (early, late) = (of(&counts.early, name), of(&counts.late, name));
        let (text, meaning) = words(name);
        rows.push(vec![
            plain(text),
            number(early, Tone::Warning),
            number(late, Tone::Bad),
            faint(meaning),
        ]);
    }
    page.table(&[Column::Left, Column::Right, Column::Right, Column::Shrinks], &rows);
}

fn contrast(page: &mut Page, report: &Report) {
    let table = &report.contrast;
    let all = table.stale_failed + table.stale_ok + table.other_failed + table.other_ok;
    if all > 0 {
        page.heading("Connects after the rollout");
        let row = |name: &str, failed: u64, ok: u64| {
            let share = match failed + ok {
                0 => "–".to_owned(),
                all => percent(failed as f64 / all as f64),
            };
            vec![plain(name), number(failed, Tone::Bad), number(ok, Tone::Plain), plain(share)]
        };
        let head = vec![plain(""), faint("failed"), faint("answered"), faint("failed of all")];
        page.table(
            &[Column::Left, Column::Right, Column::Right, Column::Right],
            &[
                head,
                row("met a stale entry", table.stale_failed, table.stale_ok),
                row("met none", table.other_failed, table.other_ok),
            ],
        );
        if let Some(p) = table.p_value {
            page.hanging(
                &[plain("  ")],
                Tone::Plain,
                &format!(
                    "If stale entries made no difference, chance would give such a table with {} \
                     (Fisher's exact test).",
                    probability(p)
                ),
            );
        }
    }
    if report.exposure.attempts > 0 || report.model.is_some() {
        page.heading("How often a stale entry was met");
        let text = format!(
            "{} in the whole trace; {} of these connects failed",
            times(report.exposure.attempts),
            count(report.exposure.failed)
        );
        page.hanging(&[plain("  seen      ")], Tone::Plain, &text);
    }
    if let Some(model) = &report.model {
        let fits = (model.low..=model.high).contains(&(model.observed as f64));
        let text = format!(
            "{:.0} times late (95 %: {:.0} to {:.0}) by the kernel's way of choosing ports; it was {}{}",
            model.expected,
            model.low,
            model.high,
            times(model.observed),
            if fits { "" } else { ", outside that range (weak evidence: it changes no verdict)" }
        );
        page.hanging(&[plain("  expected  ")], Tone::Plain, &text);
    }
    if !report.survived.is_empty() {
        let n = report.survived.len() as u64;
        page.hanging(
            &[plain("  ")],
            Tone::Plain,
            &format!("{} met a stale entry and did not fail:", count(n)),
        );
    }
    for survivor in report.survived.iter().take(SURVIVORS) {
        let evidence: Vec<String> = survivor.evidence.iter().map(Seq::to_string).collect();
        let evidence = match evidence.is_empty() {
            true => String::new(),
            false => format!(" ({})", evidence.join(", ")),
        };
        bullets(
            page,
            &[format!(
                "{} at {:.3} s, entry {:.1} s old to {}: {}{evidence}",
                survivor.source, survivor.start, survivor.entry_age, survivor.backend, survivor.why
            )],
        );
    }
    match report.survived.len().saturating_sub(SURVIVORS) {
        0 => {}
        more => bullets(page, &[format!("and {} more", count(more as u64))]),
    }
}

fn entries(page: &mut Page, report: &Report) {
    let entries = &report.entries;
    if entries.stale > 0 {
        let noun = if entries.stale == 1 { "stale entry points" } else { "stale entries point" };
        page.heading(&format!("{} {noun} at", count(entries.stale)));
        let mut rows = vec![vec![
            faint("backend"),
            faint("pod"),
            faint("entries"),
            faint("gone at"),
            faint("rules lag"),
        ]];
        for at in &entries.pointing_at {
            let pod = pod_of(report, at);
            rows.push(vec![
                plain(at.backend.to_string()),
                plain(at.pod.clone().unwrap_or_else(|| "unknown".to_owned())),
                plain(count(at.entries)),
                seconds(pod.and_then(|pod| pod.gone), 1),
                seconds(pod.and_then(|pod| pod.rules_lag), 2),
            ]);
        }
        let columns =
            [Column::Shrinks, Column::Shrinks, Column::Right, Column::Right, Column::Right];
        page.table(&columns, &rows);
        page.hanging(
            &[plain("  ")],
            Tone::Faint,
            "rules lag: how long the node's rules still chose the pod after it was gone",
        );
    }
}

fn pod_of<'a>(report: &'a Report, at: &PointingAtRow) -> Option<&'a PodRow> {
    let is_it = |pod: &&PodRow| {
        pod.address == Some(at.backend.ip()) && at.pod.as_ref().is_none_or(|name| *name == pod.name)
    };
    report.pods.iter().find(is_it)
}

fn stories(page: &mut Page, report: &Report) {
    for story in &report.stories {
        page.heading(&format!("Step by step: {}", story.title));
        steps(page, story);
        page.hanging(&[plain("  ")], Tone::Faint, "#: the event's place in the trace");
    }
}

fn steps(page: &mut Page, story: &Story) {
    for step in &story.steps {
        let seq = step.seq.map(|seq| seq.to_string()).unwrap_or_default();
        let lead = [plain(format!("  {:>9.3} s  ", step.time)), faint(format!("{seq:<9} "))];
        page.hanging(&lead, Tone::Plain, &step.text);
    }
}

/// Stories alone, each under its title.
pub fn tell<'a>(stories: impl IntoIterator<Item = &'a Story>, style: &Style) -> String {
    let mut page = Page::new(Style { width: style.width.max(NARROWEST), ..*style });
    for (nth, story) in stories.into_iter().enumerate() {
        if nth > 0 {
            page.gap();
        }
        page.hanging(&[], Tone::Strong, &story.title);
        steps(&mut page, story);
    }
    page.into_text()
}

fn seen(page: &mut Page, report: &Report) {
    page.heading("How it was measured");
    let attached: Vec<&str> =
        report.hooks.iter().filter(|hook| hook.attached).map(|hook| hook.name.as_str()).collect();
    let origin = &report.origin;
    let seed = origin.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    let hooks = match attached.as_slice() {
        [] => "no hook attached".to_owned(),
        names => format!("hooks {}", names.join(", ")),
    };
    let place = match (origin.node.as_str(), origin.kernel.as_str()) {
        ("", "") => String::new(),
        (node, kernel) => format!(" on {node}, Linux {kernel}"),
    };
    let clock = match report.clock.error {
        0.0 => String::new(),
        error => format!("; clock known to {}", duration(error)),
    };
    bullets(
        page,
        &[format!("tracer {}{place}; {hooks}; `{}`{seed}{clock}", origin.tracer, origin.command)],
    );
    let closes = &report.closes;
    if closes.client + closes.server > 0 {
        let text = format!(
            "who closed first: the server on {} connections, the client on {}",
            count(closes.server),
            count(closes.client)
        );
        bullets(page, &[text]);
    }
    bullets(page, &report.notes);
    for hook in report.hooks.iter().filter(|hook| !hook.attached || hook.note.is_some()) {
        let state = if hook.attached { "" } else { " was not attached" };
        let note = hook.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        page.hanging(
            &[(Tone::Warning, "  ! ".into())],
            Tone::Plain,
            &format!("{}{state}{note}", hook.name),
        );
    }
    for loss in &report.losses {
        let text = format!(
            "lost: {}{}, {}, between {:.1} s and {:.1} s",
            if loss.at_least { "at least " } else { "" },
            words::counted(loss.count, "event"),
            loss.source,
            loss.from,
            loss.to
        );
        page.hanging(&[(Tone::Warning, "  ! ".into())], Tone::Plain, &text);
    }
    if report.losses.is_empty() {
        bullets(page, &["nothing was lost"]);
    }
}

fn bullets(page: &mut Page, texts: &[impl Display]) {
    for text in texts {
        page.hanging(&[plain("  - ")], Tone::Plain, &text.to_string());
    }
}

fn faint(text: impl Into<String>) -> Span {
    (Tone::Faint, text.into())
}

/// A count in its tone; zero is a dot, so that what is there stands out.
fn number(n: u64, tone: Tone) -> Span {
    if n == 0 { faint("·") } else { (tone, count(n)) }
}

fn times(n: u64) -> String {
    match n {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        n => format!("{} times", count(n)),
    }
}

fn seconds(time: Option<f64>, digits: usize) -> Span {
    time.map_or_else(|| faint("–"), |time| plain(format!("{time:.digits$} s")))
}

/// A share in percent; never rounded to all or nothing where it is neither.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent > 0.0 && percent < 0.1 {
        "< 0.1 %".to_owned()
    } else if percent < 100.0 && percent > 99.9 {
        "> 99.9 %".to_owned()
    } else if percent == percent.round() {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

fn probability(p: f64) -> String {
    if p < 1e-300 {
        "a probability below 1e-300".to_owned()
    } else if p < 0.001 {
        format!("a probability of {p:.0e}")
    } else {
        format!("a probability of {p:.3}")
    }
}

#[cfg(test)]
mod tests;
