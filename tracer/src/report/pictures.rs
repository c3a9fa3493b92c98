//! What pictures and single stories show beyond the rows of the JSON report: the sampled attempts of the port map,
//! the way of one failing SYN, the stories of failed requests. All of it is bounded.

use std::collections::{BTreeMap, BTreeSet};

use super::{Story, story};
use crate::correlate::{Attempt, Failure, Found, SampledEnd, Timeline};
use crate::model::{IfIndex, NetnsId, NetnsRole, RequestId, Seq, Symptom, TraceHeader};
use crate::verdict::{Cause, Finding, Verdict};

/// Of each cause so many stories are told at most, the late ones first.
pub const STORIES_OF_A_CAUSE: usize = 100;

/// Not in the JSON report: there it would be most of the bytes, and says nothing that a verdict rests on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pictures {
    /// Connects that made no request fail, by their start; of those that lie too close together to be told
    /// apart, one.
    pub attempts: Vec<AttemptDot>,
    /// Failed requests that came on a connection that was there, by their places in
    /// [`super::Report::failed`]: they were no connects.
    pub kept: BTreeSet<usize>,
    /// The way of one failed request's SYN: that of the first story, if it sent one.
    pub path: Option<SynPath>,
    /// Stories by their failure's place in [`super::Report::failed`]: of each cause the first, up to
    /// [`STORIES_OF_A_CAUSE`].
    pub stories: BTreeMap<usize, Story>,
    /// The figures of the intervention, if there was one.
    pub intervention: Option<String>,
}

/// A connect in the port map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptDot {
    /// When it started.
    pub start: f64,
    /// From which source port.
    pub port: u16,
    /// Whether it was answered. If not, no request is known that it belonged to.
    pub answered: bool,
    /// How many it stands for, itself included.
    pub stands_for: u64,
}

/// The way of one failed request's SYN.
#[derive(Clone, Debug, PartialEq)]
pub struct SynPath {
    /// The request.
    pub request: RequestId,
    /// Its stops, from the client on.
    pub stops: Vec<PathStop>,
}

/// A stop on the way of a SYN.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStop {
    /// What kind of stop it is.
    pub kind: StopKind,
    /// Where.
    pub place: String,
    /// What happened there.
    pub what: String,
    /// When.
    pub time: Option<f64>,
    /// The event behind it.
    pub seq: Option<Seq>,
}

/// Kinds of stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// The client, at the beginning.
    Client,
    /// The node's conntrack table.
    Conntrack,
    /// A device that the SYN was handed to.
    Device,
    /// Where it was dropped.
    Drop,
    /// Where it should have arrived.
    Pod,
    /// The client again, with what it saw in the end.
    End,
}

/// What the pictures need, from the same things as the rest of the report.
pub(super) fn build(header: &TraceHeader, timeline: &Timeline, verdict: &Verdict) -> Pictures {
    let sampled = timeline.sample.attempts().into_iter();
    // Of the first story, or else of the first failed request that sent a SYN of its own.
    let mut candidates = story::of_interest(verdict).into_iter().chain(0..timeline.failures.len());
    let path = candidates.find_map(|index| {
        path(header, timeline, &timeline.failures[index], &verdict.findings[index])
    });
    Pictures {
        attempts: sampled
            .map(|sampled| AttemptDot {
                start: sampled.start.seconds_from(timeline.began),
                port: sampled.port.0,
                answered: sampled.end == SampledEnd::Answered,
                stands_for: sampled.stands_for,
            })
            .collect(),
        kept: (0..timeline.failures.len())
            .filter(|index| !timeline.failures[*index].ended.reuse.is_connect())
            .collect(),
        path,
        stories: told(verdict)
            .into_iter()
            .map(|index| (index, story::tell(header, timeline, verdict, index)))
            .collect(),
        // The verdict says them last.
        intervention: (!timeline.interventions.is_empty())
            .then(|| verdict.hypothesis.reasons.last().cloned())
            .flatten(),
    }
}

/// The failures whose stories are told.
fn told(verdict: &Verdict) -> Vec<usize> {
    let mut of_cause: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut order: Vec<usize> = (0..verdict.findings.len()).collect();
    order.sort_by_key(|index| (!verdict.findings[*index].late, *index));
    // The story that the report begins with is told whatever its place.
    let first = story::of_interest(verdict);
    order.retain(|index| {
        let count = of_cause.entry(verdict.findings[*index].cause).or_default();
        *count += 1;
        *count <= STORIES_OF_A_CAUSE || Some(*index) == first
    });
    order
}

/// A device, as far as the trace can name it.
pub(super) fn device(header: &TraceHeader, netns: NetnsId, ifindex: IfIndex) -> String {
    match (ifindex.0, header.netns_name(netns)) {
        (0, Some(name)) => name.to_owned(),
        (0, None) => format!("namespace {}", netns.0),
        (device, Some(name)) => format!("{name}, device {device}"),
        (device, None) => format!("namespace {}, device {device}", netns.0),
    }
}

fn path(
    header: &TraceHeader,
    timeline: &Timeline,
    failure: &Failure,
    finding: &Finding,
) -> Option<SynPath> {
    let is_connect = failure.ended.reuse.is_connect();
    let attempt = failure.attempt.as_ref().filter(|attempt| is_connect && attempt.has_syn)?;
    let began = timeline.began;
    let target = target(attempt, finding);
    let first = attempt.first;
    let stop = |kind, place: String, what: String, seen: Option<crate::correlate::Seen>| PathStop {
        kind,
        place,
        what,
        time: seen.map(|seen| seen.time.seconds_from(began)),
        seq: seen.map(|seen| seen.seq),
    };
    let client = header.netns.iter().find(|netns| netns.role == NetnsRole::Client);
    let client = client.map_or("the client".to_owned(), |netns| netns.name.clone());
    let mut stops = vec![stop(
        StopKind::Client,
        format!("{client}, {}", attempt.orig.src.ip()),
        format!("a SYN from port {} to the service {}", attempt.orig.src.port(), attempt.orig.dst),
        failure.started,
    )];
    let node = attempt.place.and_then(|(netns, _)| header.netns_name(netns));
    let node = node.map_or("the client's node".to_owned(), str::to_owned);
    stops.push(stop(
        StopKind::Conntrack,
        format!("{node}, conntrack"),
        found(attempt, &target),
        Some(first),
    ));
    if let Some((netns, ifindex)) = attempt.place {
        let place = device(header, netns, ifindex);
        stops.push(stop(StopKind::Device, place, format!("sent out to {target}"), Some(first)));
    }
    // What follows a retransmission is the way of that one.
    let again = attempt.retransmissions.first().map(|seen| seen.time);
    let of_first = |seen: &crate::correlate::Seen| again.is_none_or(|again| seen.time < again);
    for hop in attempt.hops.iter().filter(|hop| of_first(&hop.seen)) {
        let place = device(header, hop.netns, hop.ifindex);
        stops.push(stop(StopKind::Device, place, "passed on".to_owned(), Some(hop.seen)));
    }
    let mut drops = attempt.drops.iter();
    if let Some(drop) = drops.find(|drop| !drop.is_answer && of_first(&drop.seen)) {
        let place = header.netns_name(drop.netns).map_or("on its way".to_owned(), str::to_owned);
        let what = format!("dropped: {}", header.drop_reason(drop.reason));
        stops.push(stop(StopKind::Drop, place, what, Some(drop.seen)));
    }
    let (what, seen) = arrival(attempt, finding);
    stops.push(stop(StopKind::Pod, target, what, seen));
    let took = failure.ended.total.as_secs_f64();
    let what = match failure.symptom {
        Symptom::ConnectTimeout => {
            let syns = match attempt.syns {
                1 => "one SYN".to_owned(),
                syns => format!("{syns} SYNs"),
            };
            format!("gives up after {took:.2} s and {syns} without an answer")
        }
        symptom => format!("{symptom} after {took:.2} s"),
    };
    stops.push(stop(StopKind::End, client, what, Some(failure.end)));
    Some(SynPath { request: failure.ended.id, stops })
}

/// Where the SYN went: the pod with its address.
fn target(attempt: &Attempt, finding: &Finding) -> String {
    match (&finding.pod, finding.backend) {
        (Some(pod), Some(backend)) => format!("{pod}, {backend}"),
        (None, Some(backend)) => backend.to_string(),
        (_, None) => attempt.orig.dst.to_string(),
    }
}

fn found(attempt: &Attempt, target: &str) -> String {
    match &attempt.found {
        Found::Older(older) => {
            let age = older.made.map_or("an old entry".to_owned(), |made| {
                let age = attempt.first.time.since(made).as_secs_f64();
                format!("an entry {age:.1} s old")
            });
            let state = older.state.map_or(String::new(), |state| format!(" in {}", state.name()));
            let maker = match older.maker.and_then(|maker| maker.request) {
                Some(request) => format!(", made by request {} from the same port", request.0),
                None => String::new(),
            };
            format!("finds {age}{state}{maker}: it says {target}, so the rules are not asked")
        }
        Found::Fresh { .. } => format!("no entry of this port: the rules choose {target}"),
        Found::Untranslated => "no rule translates it".to_owned(),
        Found::NoEntry => "conntrack gives it no entry".to_owned(),
        Found::Unsure { why, .. } => why.text().to_owned(),
    }
}

fn arrival(attempt: &Attempt, finding: &Finding) -> (String, Option<crate::correlate::Seen>) {
    if let Some(answer) = attempt.answer {
        ("answers with a SYN-ACK".to_owned(), Some(answer.seen))
    } else if let Some(reset) = attempt.reset {
        ("a RST comes back".to_owned(), Some(reset.seen))
    } else if let Some(icmp) = attempt.icmp {
        (format!("{} answers with an ICMP error", icmp.from), Some(icmp.seen))
    } else if let Some(gone) = finding.since_gone {
        (format!("gone for {:.1} s: nobody answers", gone.as_secs_f64()), None)
    } else {
        ("no answer was seen".to_owned(), None)
    }
}
