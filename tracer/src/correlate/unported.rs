//! Requests whose log does not know their source port: which attempt was theirs, by time and outcome.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use super::Correlator;
use super::attempt::Attempt;
use super::entry::{Found, Unsure};
use crate::model::{Isn, MonoNs, Origin, Outcome, RequestEnded, Symptom, TraceHeader, Tuple};

/// How long after a request's start its first SYN is looked for: the log's step and the making of a socket.
const WITHIN: Duration = Duration::from_millis(10);
/// How long before it: two clocks, or two readings of one.
const SKEW: Duration = Duration::from_millis(5);
/// No request is looked for longer than this after its start.
const LONGEST: Duration = Duration::from_secs(60);

/// The attempts of the last while, in the order of their first SYNs.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    /// Only others' logs leave ports out.
    on: bool,
    firsts: VecDeque<(MonoNs, Tuple, Isn)>,
}

impl Recent {
    pub(super) fn new(header: &TraceHeader) -> Recent {
        let on = matches!(header.origin, Origin::Replay { .. });
        Recent { on, firsts: VecDeque::new() }
    }

    /// A connect's first SYN.
    pub(super) fn first(&mut self, time: MonoNs, orig: Tuple, isn: Isn) {
        if !self.on {
            return;
        }
        while self.firsts.front().is_some_and(|(first, ..)| time.since(*first) > LONGEST) {
            self.firsts.pop_front();
        }
        self.firsts.push_back((time, orig, isn));
    }

    fn between(&self, from: MonoNs, to: MonoNs, target: SocketAddr) -> Vec<(Tuple, Isn)> {
        // Nearly in order: a little more is looked at on both sides.
        let begin = self.firsts.partition_point(|(time, ..)| *time + Duration::from_secs(1) < from);
        self.firsts
            .range(begin..)
            .take_while(|(time, ..)| *time <= to + Duration::from_secs(1))
            .filter(|(time, orig, _)| from <= *time && *time <= to && orig.dst == target)
            .map(|(_, orig, isn)| (*orig, *isn))
            .collect()
    }
}

impl Correlator {
    /// The attempt of a request without a source port: of those that nobody claimed, whose first SYN was sent
    /// at its start and whose packets fit its outcome, the nearest. If others fit as well and found something
    /// else, it can't be told which of them was its own, and so not what it found.
    pub(super) fn attempt_without_port(
        &mut self,
        ended: &RequestEnded,
        opened: MonoNs,
        end: MonoNs,
    ) -> Option<Attempt> {
        let from = opened - SKEW;
        let to = (opened + WITHIN).min(end + SKEW);
        let mut fitting: Vec<Attempt> = Vec::new();
        for (orig, isn) in self.unported.between(from, to, ended.target?) {
            let attempt = self.lanes.lane(orig).and_then(|lane| lane.attempt(isn));
            if let Some(attempt) = attempt
                && attempt.request.is_none()
                && fits(attempt, ended.outcome, end)
            {
                fitting.push(attempt.clone());
            }
        }
        let away = |attempt: &Attempt| attempt.first.time.0.abs_diff(opened.0);
        fitting.sort_by_key(away);
        let nearest = fitting.first()?.clone();
        if fitting.iter().any(|other| !self.found_alike(&nearest, other)) {
            let why = Unsure::WhichAttempt;
            return Some(Attempt { found: Found::Unsure { backend: None, why }, ..nearest });
        }
        let lane = self.lanes.lane(nearest.orig)?;
        let index = lane.attempts.iter().rposition(|attempt| attempt.isn == nearest.isn)?;
        Some(lane.take(index))
    }

    /// Whether the same would be said of both.
    fn found_alike(&self, one: &Attempt, other: &Attempt) -> bool {
        let gone = |attempt: &Attempt| {
            let backend = attempt.found.backend();
            backend.map(|backend| self.pods.may_be_gone(backend.ip(), attempt.first.time))
        };
        std::mem::discriminant(&one.found) == std::mem::discriminant(&other.found)
            && gone(one) == gone(other)
    }
}

/// Whether an attempt's packets are those of a request that ended so.
fn fits(attempt: &Attempt, outcome: Outcome, end: MonoNs) -> bool {
    let by_then = |time: MonoNs| time <= end + WITHIN;
    let accepted = attempt.answer.is_some_and(|answer| by_then(answer.seen.time));
    let refused = attempt.reset.is_some_and(|reset| reset.of_syn && by_then(reset.seen.time));
    let told = attempt.icmp.is_some_and(|icmp| by_then(icmp.seen.time));
    match outcome {
        Outcome::Failed { symptom: Symptom::ConnectTimeout, .. } => !accepted && !refused,
        Outcome::Failed { symptom: Symptom::Refused, .. } => !accepted && (refused || told),
        Outcome::Failed { symptom: Symptom::Unreachable, .. } => !accepted && !refused,
        Outcome::Failed { symptom: Symptom::Local, .. } => false,
        Outcome::Failed { .. } | Outcome::Answered { .. } => accepted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::correlate::Timeline;
    use crate::correlate::testing::{scene, timeline};
    use crate::model::EventKind;

    /// The timeline of a scene whose request log knows no source port of a request that failed.
    fn without_ports(text: &str) -> Timeline {
        let mut scene = scene(text);
        scene.header.origin = Origin::Replay { command: "tracer replay".to_owned() };
        for event in &mut scene.events {
            if let EventKind::RequestEnded(ended) = &mut event.kind
                && ended.outcome.symptom().is_some()
            {
                ended.source = None;
            }
        }
        timeline(&scene)
    }

    fn ports(timeline: &Timeline) -> Vec<Option<u16>> {
        let attempts = timeline.failures.iter().map(|failure| failure.attempt.as_ref());
        attempts.map(|attempt| Some(attempt?.orig.src.port())).collect()
    }

    #[test]
    fn a_request_without_a_port_finds_the_attempt_that_was_sent_then() {
        let timeline = without_ports(
            "0s   pod a 10.0.1.7 added
             10s  blackhole 40002 isn 1 left 120s to a
             11s  blackhole 40004 isn 2 left 120s to a
             11s  connect 40006 isn 3 to a",
        );
        assert_eq!(ports(&timeline), [Some(40002), Some(40004)]);
        assert_eq!(timeline.requests.ended, 3);
    }

    #[test]
    fn an_attempt_is_the_own_of_one_request_only() {
        let timeline = without_ports(
            "0s       pod a 10.0.1.7 added
             10s      blackhole 40002 isn 1 left 120s to a
             10.001s  blackhole 40004 isn 2 left 120s to a",
        );
        let mut ports = ports(&timeline);
        ports.sort();
        assert_eq!(ports, [Some(40002), Some(40004)]);
    }

    #[test]
    fn attempts_that_found_different_things_leave_it_open_which_was_its_own() {
        let timeline = without_ports(
            "0s   pod a 10.0.1.7 added
             10s  blackhole 40002 isn 1 left 120s to a
             50s  blackhole 40002 isn 2 left 80s to a
             50s  blackhole 40004 isn 3 left 120s to a",
        );
        let found: Vec<&Found> = timeline.failures[1..]
            .iter()
            .map(|failure| &failure.attempt.as_ref().unwrap().found)
            .collect();
        let unsure = Found::Unsure { backend: None, why: Unsure::WhichAttempt };
        assert_eq!(found, [&unsure, &unsure]);
    }

    #[test]
    fn an_attempt_that_was_answered_is_not_that_of_a_connect_timeout() {
        let timeline = without_ports(
            "0s   pod a 10.0.1.7 added
             10s  syn 40002 isn 1 left 120s to a
             10s  connect 40004 isn 2 to a
             10s  request 7 40006 connect-timeout 3s",
        );
        assert_eq!(ports(&timeline), [Some(40002)]);
    }
}
