//! What happened, put together: the correlator's result.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::Attempt;
use super::endpoints::Endpoints;
use super::entry::{Entry, Renewal};
use super::pods::{Pods, Seen};
use super::sample::Sample;
use super::tally::Tally;
use super::translation::Translation;
use super::trials::Intervened;
use crate::model::{
    Hook, LossSource, MonoNs, Process, RequestEnded, Resolution, Symptom, Workload,
};

/// All that a verdict rests on. Successes are counts; failures, meetings and entries are kept one by one.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The trace's beginning.
    pub began: MonoNs,
    /// Its last event.
    pub ended: MonoNs,
    /// The pods and their addresses.
    pub pods: Pods,
    /// The Services' endpoints.
    pub endpoints: Endpoints,
    /// The rollouts that events told of.
    pub rollouts: Vec<Rollout>,
    /// Requests that failed, by their start.
    pub failures: Vec<Failure>,
    /// Attempts that did not make a request fail, but met an older entry whose backend may have been gone;
    /// and attempts of no known request that met one. By their first SYN.
    pub meetings: Vec<Meeting>,
    /// Entries without a reply, or met by a later attempt, whose backend may have been gone while they
    /// lived; by when they were made.
    pub entries: Vec<Entry>,
    /// Requests and connects over time.
    pub tally: Tally,
    /// Connects over time and source ports, but for those that made a request fail; thinned.
    pub sample: Sample,
    /// The counts of requests.
    pub requests: Requests,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// What this kernel does with an unreplied entry's timer.
    pub renewal: Renewal,
    /// What conntrack does with connects here.
    pub translation: Translation,
    /// Connections closed first by the client, and by the server.
    pub closes: (u64, u64),
    /// What the cgroups are whose processes connected, where that was told.
    pub workloads: BTreeMap<u64, Workload>,
    /// What was changed on purpose, and what came of it.
    pub interventions: Vec<Intervened>,
    /// What was done with the events.
    pub counters: BTreeMap<&'static str, u64>,
}

/// Counts of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// That ended.
    pub ended: u64,
    /// That failed.
    pub failed: u64,
    /// That succeeded only by a retransmission.
    pub slowed: u64,
    /// That succeeded after their name had taken more than a second to resolve.
    pub slow_names: u64,
    /// That began and did not end in the trace.
    pub unfinished: u64,
    /// Those that asked for a name.
    pub names: Names,
    /// The largest number that were open at once, each time that it grew.
    pub most_open: Vec<(MonoNs, u32)>,
}

/// Names that requests asked for, by the client's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// How many.
    pub asked: u64,
    /// How many of them got no address.
    pub failed: u64,
    /// How long those that got one took, together.
    pub took: Duration,
    /// How long the slowest of these took.
    pub longest: Duration,
}

impl Names {
    pub(super) fn count(&mut self, resolution: Resolution) {
        self.asked += 1;
        if resolution.failed.is_some() {
            self.failed += 1;
        } else {
            self.took = self.took.saturating_add(resolution.took);
            self.longest = self.longest.max(resolution.took);
        }
    }

    /// How many got an address.
    pub fn resolved(&self) -> u64 {
        self.asked - self.failed
    }
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Which Deployment.
    pub deployment: String,
    /// When the template changed.
    pub started: Option<Seen>,
    /// When it was complete.
    pub finished: Option<Seen>,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The request as its end tells it.
    pub ended: RequestEnded,
    /// What the client saw.
    pub symptom: Symptom,
    /// When it started: its own event, or its end less its duration.
    pub start: MonoNs,
    /// The event of its start, if it was seen.
    pub started: Option<Seen>,
    /// Its end.
    pub end: Seen,
    /// Its connect, if any packet was seen of it.
    pub attempt: Option<Attempt>,
    /// The process that made it, where the kernel told.
    pub by: Option<Process>,
}

/// An attempt that met an older entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The attempt.
    pub attempt: Attempt,
    /// When its request started, or else its first SYN.
    pub start: MonoNs,
    /// What became of it.
    pub end: MeetingEnd,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeetingEnd {
    /// Its request was answered.
    Answered,
    /// It belongs to no known request, and was accepted.
    Accepted,
    /// It belongs to no known request, and was not accepted.
    Unanswered,
    /// It was still open when the trace ended.
    Open,
}

/// Events that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where.
    pub source: LossSource,
    /// How many.
    pub count: u64,
    /// The earliest time at which it can have happened.
    pub from: MonoNs,
    /// The latest.
    pub to: MonoNs,
}

impl Loss {
    /// Whether packets can be among what was lost: silence proves nothing then.
    pub fn hides_packets(&self) -> bool {
        matches!(
            self.source,
            LossSource::Ring(Hook::NetDevStartXmit)
                | LossSource::Codec
                | LossSource::TraceFile
                | LossSource::Capture
                | LossSource::Window
        )
    }

    /// Whether it can have happened between two times.
    pub fn touches(&self, from: MonoNs, to: MonoNs) -> bool {
        self.from <= to && from <= self.to
    }
}
