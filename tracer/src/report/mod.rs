//! What is said: the report as plain values ([`Report`]), and its forms (terminal, JSON, HTML).
//! Deliberately absent: judging. Every number here was decided in `correlate` or `verdict`.

#[cfg(test)]
pub(crate) mod fixture;
pub mod html;
pub mod json;
pub mod live;
pub mod pictures;
pub mod story;
pub mod terminal;
#[cfg(test)]
mod tests;
pub mod view;
pub mod words;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;

pub use pictures::Pictures;

use crate::model::{RequestId, Seq, Symptom};
use crate::verdict::{Cause, HypothesisName, VerdictOutcome};

/// All that a report says. Its serialisation is the JSON report, schema 1. Times are seconds since the
/// trace began, durations are seconds. Maps are sorted, so the same trace gives the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The version of this layout.
    pub schema: u32,
    /// The leading hypothesis: the reused source port.
    pub hypothesis: HypothesisRow,
    /// Its rivals.
    pub rivals: Vec<HypothesisRow>,
    /// Requests by how they ended.
    pub requests: RequestCounts,
    /// Names that requests asked for; none if they had an address.
    pub names: Option<NamesRow>,
    /// Failed requests by cause.
    pub failures: EarlyLate<Cause>,
    /// Failed requests by symptom.
    pub symptoms: EarlyLate<Symptom>,
    /// Attempts after the rollout: met a live stale entry or not, failed or not.
    pub contrast: ContrastRow,
    /// Attempts, at any time, that met a live stale entry.
    pub exposure: ExposureRow,
    /// What the kernel's port walk let expect, as known when late began; none without a rollout or
    /// stale entries.
    pub model: Option<ModelRow>,
    /// The stale entries.
    pub entries: EntriesRow,
    /// The rollouts.
    pub rollouts: Vec<RolloutRow>,
    /// From when on a request is late.
    pub late: LateRow,
    /// The pods.
    pub pods: Vec<PodRow>,
    /// The hooks.
    pub hooks: Vec<HookRow>,
    /// What was lost.
    pub losses: Vec<LossRow>,
    /// Which clock the times are on.
    pub clock: ClockRow,
    /// Failures over time, in bins of 10 s from the trace's beginning.
    pub bins: Vec<BinRow>,
    /// Each failed request, with its cause and the events behind it.
    pub failed: Vec<FailureRow>,
    /// Each attempt that met a live stale entry and did not fail.
    pub survived: Vec<SurvivorRow>,
    /// Who closed first, over the connections whose close was seen.
    pub closes: CloseCounts,
    /// Packets and socket changes that were counted, by what was done with them.
    pub counters: BTreeMap<String, u64>,
    /// Where the trace comes from and on which machine.
    pub origin: OriginRow,
    /// Stories of single failures: of the first late one, or else of the first.
    pub stories: Vec<Story>,
    /// What a reader must know, a sentence each.
    pub notes: Vec<String>,
    /// What pictures show beyond all that; not in the JSON.
    #[serde(skip)]
    pub pictures: Pictures,
}

/// A hypothesis and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HypothesisRow {
    /// Its name.
    pub name: HypothesisName,
    /// What became of it.
    pub outcome: VerdictOutcome,
    /// The share of the late failures that it explains, 0 to 1; none where there were no late failures.
    pub share: Option<f64>,
    /// Whether an intervention proved it; none where there was no intervention.
    pub proven: Option<bool>,
    /// Why, a sentence each.
    pub reasons: Vec<String>,
}

/// Requests by how they ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestCounts {
    /// All that ended.
    pub total: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that failed late.
    pub late: u64,
    /// Those that succeeded, but only by a retransmission.
    pub slowed: u64,
    /// Those that succeeded, but after a name that took more than a second to resolve.
    pub slow_names: u64,
    /// Those that began and had not ended when the trace did.
    pub unfinished: u64,
}

/// Names that requests asked for, by the client's word: no packet of DNS is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NamesRow {
    /// How many.
    pub asked: u64,
    /// How many of them got no address.
    pub failed: u64,
    /// How long those that got one took on average; none if there were none.
    pub mean: Option<f64>,
    /// How long the slowest of these took.
    pub longest: Option<f64>,
}

/// Counts, early and late apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlyLate<K: Ord + Serialize> {
    /// Of the requests that started until the rollout was complete and a little longer.
    pub early: BTreeMap<K, u64>,
    /// Of those that started later.
    pub late: BTreeMap<K, u64>,
}

impl<K: Ord + Serialize> Default for EarlyLate<K> {
    fn default() -> Self {
        EarlyLate { early: BTreeMap::new(), late: BTreeMap::new() }
    }
}

/// The 2×2 table of attempts after the rollout, with Fisher's exact test (one-sided: stale fails more).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ContrastRow {
    /// Met a live stale entry, failed.
    pub stale_failed: u64,
    /// Met one, did not fail.
    pub stale_ok: u64,
    /// Met none, failed.
    pub other_failed: u64,
    /// Met none, did not fail.
    pub other_ok: u64,
    /// The test's p-value; none where a margin of the table is zero.
    pub p_value: Option<f64>,
}

/// Attempts that met a live stale entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExposureRow {
    /// How many.
    pub attempts: u64,
    /// How many of them failed.
    pub failed: u64,
}

/// The model's expectation of late attempts that meet a stale entry, with its 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelRow {
    /// The mean.
    pub expected: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// How many there were, to compare.
    pub observed: u64,
}

/// The stale entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EntriesRow {
    /// How many.
    pub stale: u64,
    /// By the backend that they point at.
    pub pointing_at: Vec<PointingAtRow>,
    /// Each of them.
    pub list: Vec<EntryRow>,
}

/// How many stale entries point at one backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PointingAtRow {
    /// The backend.
    pub backend: SocketAddr,
    /// The pod that had its address.
    pub pod: Option<String>,
    /// How many.
    pub entries: u64,
}

/// One stale entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryRow {
    /// The client's end of its original tuple.
    pub source: SocketAddr,
    /// Where the client wanted to go.
    pub service: SocketAddr,
    /// Where it points.
    pub backend: SocketAddr,
    /// When its first SYN was seen.
    pub made: f64,
    /// When it expires or expired.
    pub expires: Option<f64>,
    /// How many later attempts met it.
    pub met: u64,
    /// The event that made it.
    pub seqs: Vec<Seq>,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RolloutRow {
    /// Which Deployment.
    pub deployment: String,
    /// When its template changed.
    pub started: Option<f64>,
    /// When it was complete.
    pub finished: Option<f64>,
}

/// From when on a request is late.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LateRow {
    /// What that is measured from.
    pub measured_from: MeasuredFrom,
    /// When the first late time begins; none if a rollout was not complete, or there was none.
    pub from: Option<f64>,
}

/// What lateness is measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredFrom {
    /// The rollouts of the trace.
    Rollouts,
    /// The times that the user gave.
    Given,
    /// Each pod's going, where there was no rollout.
    Deletions,
    /// Nothing: there is nothing after which anything could be late.
    Nothing,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodRow {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Option<IpAddr>,
    /// When its deletion was asked for.
    pub asked: Option<f64>,
    /// When it answered nobody any more: since then it is gone.
    pub gone: Option<f64>,
    /// How long after that this node's rules still chose it: the last fresh DNAT to it, measured from
    /// `gone`. None if there was none.
    pub rules_lag: Option<f64>,
}

/// A hook.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookRow {
    /// Its name.
    pub name: String,
    /// Whether its program ran.
    pub attached: bool,
    /// Why not, or what it can't tell here.
    pub note: Option<String>,
}

/// A loss.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossRow {
    /// Where.
    pub source: String,
    /// How many events.
    pub count: u64,
    /// Whether there may have been more: where a file was cut off or damaged nobody counted them.
    pub at_least: bool,
    /// From when.
    pub from: f64,
    /// Until when.
    pub to: f64,
}

/// The clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockRow {
    /// The zero of all times, in seconds of Unix time.
    pub began_unix: f64,
    /// How far that may be off, in seconds.
    pub error: f64,
    /// How long the trace is.
    pub duration: f64,
}

/// 10 s of requests, by their start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BinRow {
    /// The bin's beginning.
    pub from: f64,
    /// Requests that were answered.
    pub ok: u64,
    /// Failed ones that started early.
    pub early: u64,
    /// Failed ones that started late.
    pub late: u64,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FailureRow {
    /// Which.
    pub request: RequestId,
    /// When it started.
    pub start: f64,
    /// How long it took.
    pub total: f64,
    /// The client's end.
    pub source: Option<SocketAddr>,
    /// What the client saw.
    pub symptom: Symptom,
    /// Why.
    pub cause: Cause,
    /// Whether it was late.
    pub late: bool,
    /// The backend of its SYN.
    pub backend: Option<SocketAddr>,
    /// The pod at that address, then.
    pub pod: Option<String>,
    /// How old the entry was that its first SYN met; 0 for a fresh one.
    pub entry_age: Option<f64>,
    /// How long its backend had been gone when it started.
    pub since_gone: Option<f64>,
    /// The process that made it, and its pod or cgroup, where its socket told.
    pub by: Option<String>,
    /// In words: why this cause, and for `unseen` why nothing was seen.
    pub why: String,
    /// The events behind it.
    pub evidence: Vec<Seq>,
}

/// An attempt that met a live stale entry and did not fail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SurvivorRow {
    /// The request, if one is known.
    pub request: Option<RequestId>,
    /// When its first SYN was seen.
    pub start: f64,
    /// The client's end.
    pub source: SocketAddr,
    /// The backend of the entry.
    pub backend: SocketAddr,
    /// How old the entry was.
    pub entry_age: f64,
    /// What became of it, in words.
    pub why: String,
    /// The events behind it.
    pub evidence: Vec<Seq>,
}

/// Who closed first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CloseCounts {
    /// Connections whose client sent the first FIN.
    pub client: u64,
    /// Connections whose server did.
    pub server: u64,
}

/// Where a trace comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OriginRow {
    /// tracer's version.
    pub tracer: String,
    /// The command that made the trace.
    pub command: String,
    /// The seed of its random choices, if it had any.
    pub seed: Option<u64>,
    /// The kernel.
    pub kernel: String,
    /// The node.
    pub node: String,
    /// The sysctls that matter, by namespace and name.
    pub sysctls: BTreeMap<String, String>,
}

/// One failed request, step by step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Story {
    /// The request.
    pub request: RequestId,
    /// A sentence that names it.
    pub title: String,
    /// Its steps in the order of time.
    pub steps: Vec<StoryStep>,
}

/// A step of a story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoryStep {
    /// When.
    pub time: f64,
    /// What happened.
    pub text: String,
    /// The event behind it.
    pub seq: Option<Seq>,
}
