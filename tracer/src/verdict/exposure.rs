//! Who met a live stale entry, what became of it, and the contrast with those who met none.

use std::net::SocketAddr;
use std::time::Duration;

use crate::correlate::{Attempt, Failure, MeetingEnd, Timeline};
use crate::model::{MonoNs, RequestId, Seq};

use super::Cause;
use super::gone::heir;
use super::judge::{Bench, Finding, entry_age, seconds};
use super::late::Rollouts;

/// An attempt that met a live stale entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// Its request, if one is known.
    pub request: Option<RequestId>,
    /// When its request, or else the attempt, started.
    pub start: MonoNs,
    /// Whether that was late.
    pub late: bool,
    /// The client's end.
    pub source: SocketAddr,
    /// Where the entry pointed.
    pub backend: SocketAddr,
    /// How old it was, if known.
    pub entry_age: Option<Duration>,
    /// What became of it.
    pub fate: Fate,
    /// The events behind it.
    pub evidence: Vec<Seq>,
}

/// What became of an exposed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It failed.
    Failed,
    /// It did not, for the reason given: the entry still did what the hypothesis says.
    Explained(String),
    /// It did not, and nothing explains it: this speaks against the hypothesis.
    Unexplained(String),
    /// It was still open when the trace ended.
    Open,
}

/// Attempts by {met a live stale entry or not} × {failed or not}.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Contrast {
    /// Met one, failed.
    pub stale_failed: u64,
    /// Met one, did not fail.
    pub stale_ok: u64,
    /// Met none, failed.
    pub other_failed: u64,
    /// Met none, did not fail.
    pub other_ok: u64,
    /// Fisher's exact test, one-sided; none where a margin is zero.
    pub p_value: Option<f64>,
}

impl Contrast {
    /// Whether meeting a stale entry makes the difference: p < 0.01, or all of those failed and no other.
    pub fn is_clear(&self) -> bool {
        let split = self.stale_failed > 0
            && self.stale_ok == 0
            && self.other_failed == 0
            && self.other_ok > 0;
        split || self.p_value.is_some_and(|p| p < 0.01)
    }
}

/// Every attempt, at any time, that met a live stale entry; by its start.
pub(super) fn exposed(
    bench: &Bench<'_>,
    rollouts: &Rollouts,
    findings: &[Finding],
) -> Vec<Exposed> {
    let timeline = bench.timeline;
    let failed = timeline.failures.iter().zip(findings).filter_map(|(failure, finding)| {
        let attempt = failure.attempt.as_ref().filter(|_| finding.met_stale)?;
        Some(Exposed {
            request: Some(failure.ended.id),
            start: failure.start,
            late: finding.late,
            source: attempt.orig.src,
            backend: attempt.found.backend()?,
            entry_age: finding.entry_age,
            fate: Fate::Failed,
            evidence: finding.evidence.clone(),
        })
    });
    let others = timeline.meetings.iter().filter_map(|meeting| {
        let attempt = &meeting.attempt;
        let (gone, older) = bench.met_stale(attempt)?;
        let mut evidence: Vec<Seq> = attempt.seqs().iter().map(|seen| seen.seq).collect();
        evidence.extend(older.maker.map(|maker| maker.seen.seq));
        evidence.extend([gone.pod.asked, gone.pod.deleted].iter().flatten().map(|seen| seen.seq));
        evidence.sort();
        evidence.dedup();
        let heir = heir(timeline, older.backend, &gone, attempt.first.time);
        Some(Exposed {
            request: attempt.request,
            start: meeting.start,
            late: rollouts.is_late(meeting.start),
            source: attempt.orig.src,
            backend: older.backend,
            entry_age: entry_age(attempt),
            fate: match meeting.end {
                MeetingEnd::Unanswered => Fate::Failed,
                MeetingEnd::Open => Fate::Open,
                MeetingEnd::Answered | MeetingEnd::Accepted => {
                    survival(attempt, older.expires, heir.map(|pod| pod.name.as_str()))
                }
            },
            evidence,
        })
    });
    let mut exposed: Vec<Exposed> = failed.chain(others).collect();
    exposed.sort_by_key(|exposed| (exposed.start, exposed.source));
    exposed
}

/// Why an attempt that met a stale entry did not fail.
fn survival(attempt: &Attempt, expires: Option<MonoNs>, heir: Option<&str>) -> Fate {
    let waited = attempt.last_syn.time.since(attempt.first.time);
    if let Some((backend, _)) = attempt.moved_to {
        return Fate::Explained(format!(
            "the entry expired in the middle: its SYN sent again after {} went to {backend}",
            seconds(waited)
        ));
    }
    let accepted = attempt.answer.map(|answer| answer.seen.time);
    let accepted = accepted.or(attempt.connected.map(|seen| seen.time));
    if let (Some(accepted), Some(expires)) = (accepted, expires)
        && expires <= accepted
        && !attempt.retransmissions.is_empty()
    {
        return Fate::Explained("the entry expired before it was answered".to_owned());
    }
    match heir {
        Some(heir) => Fate::Explained(format!("{heir} has the address now and answered")),
        None => Fate::Unexplained("it was answered all the same".to_owned()),
    }
}

/// Whether a failed request counts as an attempt: not on a connection that was there, and not without a socket.
fn may_have_connected(failure: &Failure, finding: &Finding) -> bool {
    let no_socket = match finding.cause {
        Cause::LocalError => true,
        Cause::Dns => failure.attempt.is_none(),
        _ => false,
    };
    failure.ended.reuse.is_connect() && !no_socket
}

/// The contrast over the attempts that started late. A failed request without packets counts as one that
/// met none: it would otherwise vanish from the table.
pub(super) fn contrast(
    timeline: &Timeline,
    rollouts: &Rollouts,
    findings: &[Finding],
    exposed: &[Exposed],
) -> Contrast {
    let late = || exposed.iter().filter(|exposed| exposed.late);
    let stale_failed = late().filter(|exposed| exposed.fate == Fate::Failed).count() as u64;
    let stale_ok = late()
        .filter(|exposed| matches!(exposed.fate, Fate::Explained(_) | Fate::Unexplained(_)))
        .count() as u64;
    let others = timeline.failures.iter().zip(findings).filter(|(failure, finding)| {
        finding.late && !finding.met_stale && may_have_connected(failure, finding)
    });
    let other_meetings = timeline.meetings.iter().filter(|meeting| {
        meeting.end == MeetingEnd::Unanswered
            && rollouts.is_late(meeting.start)
            && !exposed.iter().any(|exposed| {
                exposed.start == meeting.start && exposed.source == meeting.attempt.orig.src
            })
    });
    let bins = timeline.tally.bins().filter(|(start, _)| rollouts.is_late(*start));
    let unanswered = bins.map(|(_, bin)| bin.unanswered as usize).sum::<usize>();
    let other_failed = others.count() + unanswered + other_meetings.count();
    let connects_ok: u64 = timeline
        .tally
        .bins()
        .filter(|(start, _)| rollouts.is_late(*start))
        .map(|(_, bin)| bin.connects_ok)
        .sum();
    let other_failed = other_failed as u64;
    let other_ok = connects_ok.saturating_sub(stale_ok);
    let p_value = super::contrast::fisher_one_sided(stale_failed, stale_ok, other_failed, other_ok);
    Contrast { stale_failed, stale_ok, other_failed, other_ok, p_value }
}
