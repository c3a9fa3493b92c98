//! One failed request, step by step: the earlier owner of its port, the entry, the pod, its SYNs, its end.

use super::{Story, StoryStep, pictures};
use crate::correlate::{Attempt, Failure, Found, Seen, Timeline};
use crate::model::{MonoNs, Process, Seq, TraceHeader};
use crate::verdict::{Cause, Finding, Verdict};

/// The failure whose story is worth telling first: the first late one whose evidence is whole, or else the
/// first late one of which something was seen, or the first late one, or the same of the early ones.
pub fn of_interest(verdict: &Verdict) -> Option<usize> {
    let rank = |finding: &Finding| {
        let is_seen = finding.cause != Cause::Unseen;
        (!finding.late, !is_seen, !finding.missing.is_empty())
    };
    let findings = verdict.findings.iter().enumerate();
    findings.min_by_key(|(place, finding)| (rank(finding), *place)).map(|(place, _)| place)
}

/// The story of the timeline's failure with this index.
///
/// # Panics
/// If there is no such failure.
pub fn tell(header: &TraceHeader, timeline: &Timeline, verdict: &Verdict, index: usize) -> Story {
    let failure = &timeline.failures[index];
    let finding = &verdict.findings[index];
    let mut telling = Telling { header, began: timeline.began, steps: Vec::new() };
    if let Some(attempt) = &failure.attempt {
        telling.before(attempt, failure.start);
        telling.pod(timeline, attempt, finding);
        telling.attempt(attempt, finding);
    }
    telling.request(timeline, failure, finding);
    // Some logs have no port where the connect failed; its packets do.
    let by_packets = || failure.attempt.as_ref().map(|attempt| attempt.orig.src);
    let source = failure.ended.source.or_else(by_packets);
    let port = source.map_or("no port".to_owned(), |source| format!("port {}", source.port()));
    let late = if finding.late { "late" } else { "early" };
    telling.steps.sort_by_key(|(place, _)| *place);
    Story {
        request: failure.ended.id,
        title: format!(
            "request {} from {port}: {} ({late}), because of {}",
            failure.ended.id.0, failure.symptom, finding.cause
        ),
        steps: telling.steps.into_iter().map(|(_, step)| step).collect(),
    }
}

struct Telling<'a> {
    header: &'a TraceHeader,
    began: MonoNs,
    /// Steps with their place in the order: time, and events at the same time as they were told.
    steps: Vec<((MonoNs, Seq), StoryStep)>,
}

impl Telling<'_> {
    fn step(&mut self, seen: Seen, text: String) {
        let time = seen.time.seconds_from(self.began);
        self.steps.push(((seen.time, seen.seq), StoryStep { time, text, seq: Some(seen.seq) }));
    }

    /// Who had the port before, and the entry that was left.
    fn before(&mut self, attempt: &Attempt, start: MonoNs) {
        let Found::Older(older) = &attempt.found else { return };
        let Some(maker) = older.maker else {
            if let Some(made) = older.made.filter(|made| *made < start) {
                let text = format!(
                    "an entry to {} is made by an attempt that was not seen; its remaining life tells when",
                    older.backend
                );
                let time = made.seconds_from(self.began);
                self.steps.push(((made, Seq(0)), StoryStep { time, text, seq: None }));
            }
            return;
        };
        let who = match (maker.request, maker.symptom) {
            (Some(request), Some(symptom)) => {
                format!("request {}, which ends in {symptom},", request.0)
            }
            (Some(request), None) => format!("request {}, which is answered,", request.0),
            (None, _) => "an earlier connect".to_owned(),
        };
        self.step(
            maker.seen,
            format!(
                "{who} sends a SYN from the same port {}; its entry points at {}",
                attempt.orig.src.port(),
                older.backend
            ),
        );
    }

    fn pod(&mut self, timeline: &Timeline, attempt: &Attempt, finding: &Finding) {
        let Some(name) = &finding.pod else { return };
        let mut lives = timeline.pods.lives().iter();
        let Some(life) = lives.find(|life| {
            life.name == *name && life.address == finding.backend.map(|backend| backend.ip())
        }) else {
            return;
        };
        let first = attempt.first.time;
        if let Some(asked) = life.asked.filter(|asked| asked.time <= first) {
            self.step(asked, format!("{name} is asked to go"));
        }
        if let Some(answer) = life.last_answer.filter(|_| life.gone().is_some_and(|it| it <= first))
        {
            self.step(answer, format!("{name} answers for the last time"));
        }
        if let Some(deleted) = life.deleted.filter(|deleted| deleted.time <= first) {
            self.step(deleted, format!("{name} is gone: its object is deleted"));
        }
    }

    fn attempt(&mut self, attempt: &Attempt, finding: &Finding) {
        let to = finding.pod.clone().or(finding.backend.map(|backend| backend.to_string()));
        let to = to.unwrap_or_else(|| attempt.orig.dst.to_string());
        let first = attempt.first;
        if attempt.has_syn {
            self.step(first, syn_text(attempt, first.time, &to));
        }
        let again = attempt.retransmissions.iter().enumerate();
        for (index, seen) in again {
            let moved = attempt.moved_to.filter(|(_, moved)| moved == seen);
            let text = match moved {
                Some((backend, _)) => {
                    format!(
                        "the SYN is sent again; the entry had expired, a new one points at {backend}"
                    )
                }
                None => format!("the SYN is sent again ({}), on the same entry", index + 1),
            };
            self.step(*seen, text);
        }
        for hop in &attempt.hops {
            let device = pictures::device(self.header, hop.netns, hop.ifindex);
            self.step(hop.seen, format!("the SYN is handed on to {device}, on its way to {to}"));
        }
        if let Some(answer) = attempt.answer {
            self.step(answer.seen, format!("{} answers with a SYN-ACK", answer.from));
        }
        if let Some(reset) = attempt.reset {
            self.step(reset.seen, "a RST answers".to_owned());
        }
        if let Some(icmp) = attempt.icmp {
            let text =
                format!("{} answers with ICMP type {} code {}", icmp.from, icmp.kind, icmp.code);
            self.step(icmp.seen, text);
        }
        for drop in &attempt.drops {
            let what = if drop.is_answer { "SYN-ACK" } else { "SYN" };
            let place = self.header.netns_name(drop.netns);
            let place = place.map_or(String::new(), |name| format!(" in {name}"));
            let why = self.header.drop_reason(drop.reason);
            self.step(drop.seen, format!("the {what} is dropped{place}: {why}"));
        }
        if let Some(connected) = attempt.connected {
            self.step(connected, "the client's socket is connected".to_owned());
        }
    }

    fn request(&mut self, timeline: &Timeline, failure: &Failure, finding: &Finding) {
        if let Some(started) = failure.started {
            let whose = failure.by.as_ref().map(|by| whose(timeline, by)).unwrap_or_default();
            let text = format!("request {} starts{whose}", failure.ended.id.0);
            self.step(started, text);
        }
        let total = failure.ended.total.as_secs_f64();
        let text = format!("it ends after {total:.2} s: {}; {}", failure.symptom, finding.why);
        self.step(failure.end, text);
    }
}

/// Of which process a connect is, and of which pod, if that was told.
fn whose(timeline: &Timeline, by: &Process) -> String {
    let process = format!(": a connect of {} (process {})", by.name, by.pid);
    let workload = timeline.workloads.get(&by.cgroup);
    match workload.and_then(|workload| workload.pod.as_ref()) {
        Some(pod) => format!("{process} in the pod {pod}"),
        None => process,
    }
}

fn syn_text(attempt: &Attempt, first: MonoNs, to: &str) -> String {
    let port = attempt.orig.src.port();
    match &attempt.found {
        Found::Older(older) => {
            let state = older.state.map_or("state unread", |state| state.name());
            let age = older.made.map_or("of unknown age".to_owned(), |made| {
                format!("{:.1} s old", first.since(made).as_secs_f64())
            });
            format!("port {port} comes round: the SYN meets the old entry ({age}, {state}) to {to}")
        }
        Found::Fresh { .. } => {
            format!("the SYN makes an entry of its own; the rules choose {to}")
        }
        Found::Untranslated => {
            "the SYN makes an entry of its own; no rule translates it".to_owned()
        }
        Found::NoEntry => "the SYN gets no entry".to_owned(),
        Found::Unsure { why, .. } => format!("a SYN goes to {to}; {}", why.text()),
    }
}
