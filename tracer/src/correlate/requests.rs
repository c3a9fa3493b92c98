//! Requests, their attempts, and the moment at which both are settled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use foldhash::fast::FixedState;

use super::attempt::Attempt;
use super::entry::{Found, Maker, OlderBy, Unsure};
use super::lanes::Lane;
use super::sample::SampledEnd;
use super::timeline::{Failure, Meeting, MeetingEnd, Requests};
use super::{Correlator, SETTLE, Seen};
use crate::model::{MonoNs, Outcome, RequestEnded, RequestId, RequestStarted, Reuse, Tuple};

/// The kernel sends a SYN again after a second (`TCP_TIMEOUT_INIT`): what comes sooner is the first.
const FIRST_WITHIN: Duration = Duration::from_millis(900);
/// How long an attempt of no known request may be quiet before it counts as over, while no request is open.
const QUIET: Duration = Duration::from_secs(5);
/// A connection that may carry more requests is forgotten when it has carried none for so long, if its end was
/// not seen. Longer than any client waits for an answer.
const IDLE: Duration = Duration::from_secs(600);
/// A name that takes longer to resolve has slowed its request, as a SYN has that had to be sent again.
pub const SLOW_NAME: Duration = Duration::from_secs(1);
/// A request's start and its socket's first SYN come from two sources: how far they may be apart.
const SKEW: Duration = Duration::from_millis(5);

/// The requests that are open, and those that ended and wait for their last packets.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    open: HashMap<RequestId, Seen, FixedState>,
    waiting: VecDeque<Waiting>,
    counts: Requests,
}

#[derive(Clone, Debug)]
struct Waiting {
    due: MonoNs,
    ended: RequestEnded,
    end: Seen,
}

impl Ledger {
    /// So many were open at once.
    pub(super) fn open_at_once(&mut self, time: MonoNs, open: u32) {
        let most = self.counts.most_open.last().map_or(0, |(_, most)| *most);
        if open > most {
            self.counts.most_open.push((time, open));
        }
    }

    pub(super) fn into_counts(mut self) -> Requests {
        self.counts.unfinished = self.open.len() as u64;
        self.counts
    }
}

impl Correlator {
    pub(super) fn request_started(&mut self, now: Seen, started: &RequestStarted) {
        self.ledger.open.insert(started.id, now);
        self.tally.at(now.time).started += 1;
        let waiting = self.ledger.waiting.len();
        let open = self.ledger.open.len().saturating_sub(waiting);
        let open = u32::try_from(open).unwrap_or(u32::MAX);
        self.ledger.open_at_once(now.time, open);
    }

    pub(super) fn request_ended(&mut self, now: Seen, ended: &RequestEnded) {
        self.ledger.waiting.push_back(Waiting {
            due: self.now + SETTLE,
            ended: ended.clone(),
            end: now,
        });
    }

    /// Settles the requests whose last packets have had their time.
    pub(super) fn settle_due(&mut self) {
        while self.ledger.waiting.front().is_some_and(|waiting| waiting.due <= self.now) {
            if let Some(waiting) = self.ledger.waiting.pop_front() {
                self.settle(waiting);
            }
        }
    }

    /// Forgets what can no longer matter.
    pub(super) fn sweep(&mut self) {
        let now = self.now;
        while let Some(client) = self.lanes.due(now) {
            let keep = self.timers.longest() + QUIET;
            let quiet = if self.ledger.open.is_empty() { QUIET } else { keep };
            self.settle_client(client, |lane, attempt| {
                let over = attempt.close.is_some() || attempt.reset.is_some();
                let quiet = match (attempt.kept, over) {
                    (Some(_), false) => IDLE,
                    // What its requests were is known, and no further one will come.
                    (Some(_), true) => QUIET,
                    (None, _) => quiet,
                };
                now.since(attempt.last_seen().max(lane.touched)) > quiet
            });
            self.retire_entries(client, keep);
            self.lanes.swept(client, now, keep);
        }
    }

    pub(super) fn settle_all(&mut self) {
        while let Some(waiting) = self.ledger.waiting.pop_front() {
            self.settle(waiting);
        }
        for client in self.lanes.clients() {
            self.settle_client(client, |_, _| true);
            for lane in self.lanes.of_client(client) {
                let entries = std::mem::take(&mut lane.entries);
                self.kept.candidates.extend(entries);
            }
        }
        for entry in std::mem::take(&mut self.kept.candidates) {
            self.archive(entry);
        }
    }

    /// Takes out the client's entries whose life is over.
    fn retire_entries(&mut self, client: std::net::SocketAddr, keep: Duration) {
        let now = self.now;
        for lane in self.lanes.of_client(client) {
            let touched = lane.touched;
            self.kept.candidates.extend(lane.entries.extract_if(.., |entry| match entry.end() {
                Some(end) => now > end + SETTLE,
                None => now.since(touched) > keep,
            }));
        }
        for entry in std::mem::take(&mut self.kept.candidates) {
            self.archive(entry);
        }
    }

    fn settle(&mut self, waiting: Waiting) {
        let Waiting { ended, end, .. } = waiting;
        let started = self.ledger.open.remove(&ended.id);
        let start = started.map_or(end.time - ended.total, |seen| seen.time);
        if started.is_none() {
            self.count("requests whose start was not seen");
            self.tally.at(start).started += 1;
        }
        // Its socket was made when there was an address.
        if let Some(resolution) = ended.resolution {
            self.ledger.counts.names.count(resolution);
        }
        let resolution = ended.resolution.map_or(Duration::ZERO, |resolution| resolution.took);
        let opened = start + resolution;
        let mut attempt = self.attempt_for(&ended, opened, end.time);
        match &mut attempt {
            Some(attempt) => {
                attempt.request = Some(ended.id);
                if ended.reuse.is_connect() {
                    self.refine(attempt, opened);
                    self.name_maker(attempt, &ended);
                    self.keep(attempt);
                }
            }
            None => self.count("requests without packets"),
        }
        self.ledger.counts.ended += 1;
        if !ended.reuse.is_connect() {
            self.tally.at(start).kept += 1;
        }
        let Outcome::Failed { symptom, .. } = ended.outcome else {
            if resolution > SLOW_NAME {
                self.ledger.counts.slow_names += 1;
            }
            self.tally.at(start).ok += 1;
            if ended.reuse.is_connect() {
                let source = ended.source.or(attempt.as_ref().map(|attempt| attempt.orig.src));
                if let Some(source) = source {
                    self.sample.add(start, source.port(), SampledEnd::Answered);
                }
                self.connected(start, attempt);
            } else if let Some(backend) = attempt.and_then(|attempt| attempt.backend()) {
                // Its pod was there, though no packet of the answer is recorded.
                self.pods.answered(backend.ip(), end);
            }
            return;
        };
        self.ledger.counts.failed += 1;
        let by = self.connects.by.remove(&ended.id);
        self.kept.failures.push(Failure { ended, symptom, start, started, end, attempt, by });
    }

    /// A request succeeded on a connection that it had made.
    fn connected(&mut self, start: MonoNs, attempt: Option<Attempt>) {
        self.tally.at(start).connects_ok += 1;
        let Some(attempt) = attempt else { return };
        if !attempt.retransmissions.is_empty() {
            self.ledger.counts.slowed += 1;
        }
        if self.is_meeting(&attempt) {
            self.kept.meetings.push(Meeting { attempt, start, end: MeetingEnd::Answered });
        }
    }

    /// Whether it met an older entry whose backend may have been gone then.
    fn is_meeting(&self, attempt: &Attempt) -> bool {
        match &attempt.found {
            Found::Older(older) => self.pods.may_be_gone(older.backend.ip(), attempt.first.time),
            _ => false,
        }
    }

    /// The attempt of a request: of those of its tuple whose first packet lies within it, the one that began
    /// nearest to it, since the port can be taken again as soon as the request has ended; on a connection
    /// that was there before, the last that was made before it. A connection that may carry more requests
    /// stays, with what its first request told of it.
    fn attempt_for(
        &mut self,
        ended: &RequestEnded,
        opened: MonoNs,
        end: MonoNs,
    ) -> Option<Attempt> {
        let Some(source) = ended.source else {
            return self.attempt_without_port(ended, opened, end);
        };
        let orig = Tuple::new(source, ended.target?);
        let lane = self.lanes.lane(orig)?;
        if !ended.reuse.is_connect() {
            let there = |attempt: &&mut Attempt| attempt.first.time <= opened + SKEW;
            let attempt = lane.attempts.iter_mut().rev().find(there)?;
            attempt.kept = attempt.kept.max(Some(end));
            return Some(attempt.clone());
        }
        let within = |attempt: &Attempt| {
            let first = attempt.first.time;
            attempt.request.is_none() && opened - SKEW <= first && first <= end + SKEW
        };
        let away = |attempt: &Attempt| attempt.first.time.0.abs_diff(opened.0);
        let (index, _) = lane
            .attempts
            .iter()
            .enumerate()
            .filter(|(_, attempt)| within(attempt))
            .min_by_key(|(_, attempt)| away(attempt))?;
        if ended.reuse == Reuse::Fresh {
            return Some(lane.take(index));
        }
        let attempt = &mut lane.attempts[index];
        attempt.request = Some(ended.id);
        attempt.kept = attempt.kept.max(Some(end));
        Some(attempt.clone())
    }

    /// With the request's start in hand, what the first SYN found can be told better: an entry made after
    /// it is the attempt's own, and a SYN that came in time was the first.
    fn refine(&mut self, attempt: &mut Attempt, start: MonoNs) {
        let first = attempt.first;
        let may_be_second =
            first.time.since(start) > FIRST_WITHIN && self.syns_lost(start, first.time);
        let backend = attempt.found.backend();
        let unsure = Found::Unsure { backend, why: Unsure::FirstSynNotSeen };
        let older = match &attempt.found {
            Found::Older(older) => older,
            // The entry was made by this SYN; what an earlier one of the same attempt met is not known.
            Found::Fresh { .. } if may_be_second => {
                attempt.found = unsure;
                return;
            }
            _ => return,
        };
        let made = older.made.filter(|made| *made + self.slack >= start && older.maker.is_none());
        if let (Some(made), Some(backend)) = (made, backend) {
            attempt.found = Found::Fresh { backend };
            self.pods.chosen(backend.ip(), first);
            if let Some(lane) = self.lanes.lane(attempt.orig)
                && let Some(entry) = lane.entries.iter_mut().find(|entry| entry.made == Some(made))
            {
                entry.met = entry.met.saturating_sub(1);
                entry.maker =
                    Some(Maker { isn: attempt.isn, seen: first, request: None, symptom: None });
            }
        } else if may_be_second && older.by == OlderBy::Replied {
            attempt.found = unsure;
        }
    }

    /// Tells the requests that are to come on the same connection what its SYN found.
    fn keep(&mut self, attempt: &Attempt) {
        if attempt.kept.is_some()
            && let Some(lane) = self.lanes.lane(attempt.orig)
            && let Some(kept) = lane.attempt(attempt.isn)
        {
            kept.found = attempt.found.clone();
        }
    }

    /// Whether a SYN between two times can have been lost.
    pub(super) fn syns_lost(&self, from: MonoNs, to: MonoNs) -> bool {
        self.losses.iter().any(|loss| loss.hides_packets() && loss.touches(from, to))
    }

    /// Tells the entries that this attempt made, and whoever met them, which request it was.
    fn name_maker(&mut self, attempt: &Attempt, ended: &RequestEnded) {
        if let Some(lane) = self.lanes.lane(attempt.orig) {
            for maker in lane.makers(attempt.isn) {
                maker.request = Some(ended.id);
                maker.symptom = ended.outcome.symptom();
            }
        }
    }

    /// Settles those attempts of a client's end that belong to no request.
    fn settle_client(
        &mut self,
        client: std::net::SocketAddr,
        is_over: impl Fn(&Lane, &Attempt) -> bool,
    ) {
        let mut over = Vec::new();
        for lane in self.lanes.of_client(client) {
            let mut index = 0;
            while index < lane.attempts.len() {
                if is_over(lane, &lane.attempts[index]) {
                    over.push(lane.take(index));
                } else {
                    index += 1;
                }
            }
        }
        // What a request claimed was counted with it.
        for attempt in over.into_iter().filter(|attempt| attempt.request.is_none()) {
            self.settle_unclaimed(attempt);
        }
    }

    fn settle_unclaimed(&mut self, mut attempt: Attempt) {
        let start = attempt.first.time;
        // Without a request, its beginning is not known: an entry of unseen make may still be its own, if
        // the SYN waited for a neighbour's address (three probes of a second, `mcast_solicit`).
        let own = matches!(&attempt.found, Found::Older(older) if older.by == OlderBy::Age
            && older.made.is_none_or(|made| start.since(made) < Duration::from_secs(4)));
        let backend = attempt.found.backend();
        if own {
            attempt.found = Found::Unsure { backend, why: Unsure::FirstSynNotSeen };
        }
        self.count("attempts of no known request");
        let is_open = self.now.since(attempt.last_syn.time) < QUIET
            && attempt.reset.is_none()
            && attempt.icmp.is_none();
        let end = if attempt.is_accepted() {
            MeetingEnd::Accepted
        } else if is_open {
            MeetingEnd::Open
        } else {
            MeetingEnd::Unanswered
        };
        let port = attempt.orig.src.port();
        match end {
            MeetingEnd::Accepted | MeetingEnd::Answered => {
                self.sample.add(start, port, SampledEnd::Answered);
            }
            MeetingEnd::Unanswered => self.sample.add(start, port, SampledEnd::Unanswered),
            MeetingEnd::Open => {}
        }
        if self.is_meeting(&attempt) {
            if end == MeetingEnd::Accepted {
                self.tally.at(start).connects_ok += 1;
            }
            self.kept.meetings.push(Meeting { attempt, start, end });
        } else {
            match end {
                MeetingEnd::Unanswered => self.tally.at(start).unanswered += 1,
                MeetingEnd::Open => {}
                MeetingEnd::Accepted | MeetingEnd::Answered => {
                    self.tally.at(start).connects_ok += 1;
                }
            }
        }
    }
}
