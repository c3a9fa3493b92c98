//! What it means: causes, evidence, contrast, exposure, model, outcome. One rule a file.
//! Pure: no I/O, no clock, no async.

mod applies;
mod cause;
pub mod contrast;
pub mod expected;
mod exposure;
pub mod gone;
mod intervention;
mod judge;
mod kept;
mod late;
pub mod model;
mod names;
mod outcome;
mod rivals;
/// `1 event was lost (request log)`, `at least 3 events were lost (trace file)`
fn lost_in_words(count: u64, source: LossSource) -> String {
    let at_least = if source.is_counted() { "" } else { "at least " };
    let (events, were) = if count == 1 { ("event", "was") } else { ("events", "were") };
    format!("{at_least}{count} {events} {were} lost ({})", source.name())
}

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use cause::Cause;
pub use expected::Expected;
pub use exposure::{Contrast, Exposed, Fate};
pub use judge::{Finding, entry_age};
pub use late::{Reference, Rollouts};

use crate::correlate::{Intervened, Timeline};
use crate::model::{Intervention, LossSource, MonoNs, TraceHeader};

/// What the user may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long after a rollout's end a failure counts as late.
    pub late_after: Duration,
    /// The rollout's start, where events don't tell it.
    pub rollout_start: Option<MonoNs>,
    /// The rollout's end, likewise.
    pub rollout_end: Option<MonoNs>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { late_after: Duration::from_secs(5), rollout_start: None, rollout_end: None }
    }
}

/// All that is concluded from a timeline.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What "late" is measured from.
    pub rollouts: Rollouts,
    /// The leading hypothesis.
    pub hypothesis: Judgement,
    /// Its rivals.
    pub rivals: Vec<Judgement>,
    /// What is said of each failure of the timeline, in the same order.
    pub findings: Vec<Finding>,
    /// Attempts that met a live stale entry.
    pub exposed: Vec<Exposed>,
    /// The contrast of the late attempts.
    pub contrast: Contrast,
    /// The model beside what was observed; none without a rollout or stale entries.
    pub model: Option<Expected>,
}

/// What became of a hypothesis, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Which.
    pub name: HypothesisName,
    /// What became of it.
    pub outcome: VerdictOutcome,
    /// The share of the late failures that it explains with whole evidence; none without late failures.
    pub share: Option<f64>,
    /// Whether an intervention proved it.
    pub proven: Option<bool>,
    /// Why, a sentence each.
    pub reasons: Vec<String>,
}

/// Judges a timeline.
pub fn assess(header: &TraceHeader, timeline: &Timeline, settings: &Settings) -> Verdict {
    let rollouts = Rollouts::new(timeline, settings);
    let bench = judge::Bench { header, timeline };
    let findings: Vec<Finding> = timeline
        .failures
        .iter()
        .map(|failure| bench.judge(failure, rollouts.is_late(failure.start)))
        .collect();
    let stale = gone::stale_entries(timeline);
    let exposed = exposure::exposed(&bench, &rollouts, &findings);
    let contrast = exposure::contrast(timeline, &rollouts, &findings, &exposed);
    let case = outcome::Case {
        header,
        timeline,
        rollouts: &rollouts,
        findings: &findings,
        exposed: &exposed,
        stale: &stale,
        contrast: &contrast,
    };
    let mut hypothesis = case.reused_source_port();
    if let Some((proven, reason)) = intervention::proof(timeline, &rollouts) {
        hypothesis.proven = proven;
        hypothesis.reasons.push(reason);
    }
    let rivals = vec![case.rival(HypothesisName::StaleRules), case.rival(HypothesisName::Dns)];
    // Where workers choose their ports themselves, the kernel's walk is not what the model takes it for.
    let is_by_kernel = |it: &Intervened| !matches!(it.what, Intervention::Ports { .. });
    let model = timeline.interventions.iter().all(is_by_kernel);
    let model = model
        .then(|| expected::known(header, timeline, &rollouts, &stale))
        .flatten()
        .map(|known| expected::expected(&known, &exposed));
    Verdict { rollouts, hypothesis, rivals, findings, exposed, contrast, model }
}

/// What became of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictOutcome {
    /// The evidence is there and nothing speaks against it.
    Supported,
    /// The evidence says that it was something else.
    Refuted,
    /// What it would explain did not happen, and it would have been seen.
    NotObserved,
    /// Something is missing; the reasons say what.
    Inconclusive,
}

/// The hypotheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HypothesisName {
    /// Late failures come from a source port that met a stale conntrack entry.
    ReusedSourcePort,
    /// They come from rules that still named a pod that was gone.
    StaleRules,
    /// They come from name resolution.
    Dns,
}
