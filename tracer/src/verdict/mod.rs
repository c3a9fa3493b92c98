//! What it means: causes, evidence, contrast, exposure, model, outcome. One rule a file.
//! Pure: no I/O, no clock, no async.

mod cause;
pub mod contrast;
pub mod model;

use serde::{Deserialize, Serialize};

pub use cause::Cause;

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
