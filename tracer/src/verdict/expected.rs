//! What the model is told: only what was known when late began, so that it predicts and does not describe.
//! Not when the rollout ended: its last pods go away just after it is complete, and their entries are part
//! of what is to come.

use std::time::Duration;

use crate::correlate::{Tally, Timeline};
use crate::model::{MonoNs, NetnsRole, Symptom, TraceHeader};

use super::exposure::Exposed;
use super::gone::StaleEntry;
use super::late::Rollouts;
use super::model::{self, Input};

/// The sysctl with the range of source ports.
const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";

/// The model's expectation of late attempts that meet a stale entry, and how many did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The mean.
    pub expected: f64,
    /// The 95 % interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Late attempts that did meet one.
    pub observed: u64,
}

/// Where the simulation's random choices come from: the same trace must give the same report.
const SEED: u64 = 1;

/// What was known when the last rollout had ended and late began; none without a rollout, or if no entry was
/// stale then.
pub fn known(
    header: &TraceHeader,
    timeline: &Timeline,
    rollouts: &Rollouts,
    stale: &[StaleEntry<'_>],
) -> Option<Input> {
    let end = rollouts.last_end().filter(|end| *end <= timeline.ended)?;
    let late = end + rollouts.late_after;
    let entries: Vec<(u16, f64)> = stale
        .iter()
        .filter(|stale| {
            // What was met or removed later was not known then; its expiry was, from its first SYN.
            stale.entry.shown.time <= late
                && stale.gone <= late
                && stale.entry.ended.is_none_or(|ended| ended.time > late)
        })
        .filter_map(|stale| {
            Some((stale.entry.orig.src.port(), stale.entry.expires?.seconds_from(end)))
        })
        .filter(|(_, expires)| *expires > 0.0)
        .collect();
    if entries.is_empty() {
        return None;
    }
    let start = rollouts.first_start().unwrap_or(timeline.began);
    let before = rate(&timeline.tally, timeline.began, start);
    let most = timeline.requests.most_open.iter().rev().find(|(time, _)| *time <= late);
    let timeout = timeline
        .failures
        .iter()
        .filter(|failure| failure.symptom == Symptom::ConnectTimeout && failure.end.time <= late)
        .map(|failure| failure.ended.total)
        .fold(Duration::ZERO, Duration::max);
    Some(Input {
        entries,
        rate: before.or_else(|| rate(&timeline.tally, timeline.began, end)).unwrap_or(0.0),
        workers: most.map_or(1, |(_, most)| *most),
        timeout: timeout.as_secs_f64(),
        range: port_range(header)?,
        from: rollouts.late_after.as_secs_f64(),
        until: timeline.ended.seconds_from(end),
        seed: SEED,
    })
}

/// The model's answer beside what was observed.
pub(super) fn expected(known: &Input, exposed: &[Exposed]) -> Expected {
    let model::Prediction { expected, low, high } = model::predict(known);
    let observed = exposed.iter().filter(|exposed| exposed.late).count() as u64;
    Expected { expected, low, high, observed }
}

/// Connects per second between two times, from the first second with any on: none if that is shorter than
/// a second.
fn rate(tally: &Tally, from: MonoNs, to: MonoNs) -> Option<f64> {
    let bins = || {
        tally.bins().filter(move |(start, bin)| {
            *start >= from && *start + tally.width() <= to && bin.connects_started() > 0
        })
    };
    let first = bins().next()?.0;
    let span = to.since(first).as_secs_f64();
    let started: u64 = bins().map(|(_, bin)| bin.connects_started()).sum();
    (span >= 1.0).then(|| started as f64 / span)
}

/// The client's port range, if the header tells it.
fn port_range(header: &TraceHeader) -> Option<(u16, u16)> {
    let of = |role: NetnsRole| {
        let mut known = header.netns.iter().filter(move |netns| netns.role == role);
        known.find_map(|netns| header.sysctl(netns.id, PORT_RANGE))
    };
    // Without a word of which namespace is the client's, all of them must say the same.
    let common = || {
        let ranges = header.sysctls.iter().filter(|sysctl| sysctl.name == PORT_RANGE);
        let mut values = ranges.map(|sysctl| sysctl.value.as_str());
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    };
    of(NetnsRole::Client).or_else(|| of(NetnsRole::ClientNode)).or_else(common).and_then(|value| {
        let mut ends = value.split_whitespace().map(str::parse);
        Some((ends.next()?.ok()?, ends.next()?.ok()?))
    })
}
