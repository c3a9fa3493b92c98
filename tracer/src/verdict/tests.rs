//! The rules on small traces: for each, one that supports, one that refutes, one that a loss makes
//! inconclusive.

mod applies;
mod causes;
mod drops;
mod false_support;
mod kept;
mod names;
mod outcomes;
mod sockets;

use crate::correlate::testing::{rollout, scene, timeline};
use crate::model::{ClusterEvent, EventKind};
use crate::verdict::{Fate, Settings, Verdict, assess};

/// What is said of a scene.
fn verdict(text: &str) -> Verdict {
    let scene = scene(text);
    assess(&scene.header, &timeline(&scene), &Settings::default())
}

/// Each failed request: cause, late, and what its evidence lacks; then each exposed attempt that did not
/// fail.
fn causes(text: &str) -> String {
    let scene = scene(text);
    let timeline = timeline(&scene);
    let verdict = assess(&scene.header, &timeline, &Settings::default());
    let mut said = String::new();
    for (failure, finding) in timeline.failures.iter().zip(&verdict.findings) {
        let late = if finding.late { "late" } else { "early" };
        said += &format!(
            "{} {late} {}: {}{}\n",
            failure.ended.id.0,
            finding.cause,
            finding.why,
            finding.missing.iter().map(|lack| format!(" [{lack}]")).collect::<String>()
        );
    }
    for exposed in &verdict.exposed {
        match &exposed.fate {
            Fate::Failed => {}
            Fate::Explained(why) => said += &format!("survived: {why}\n"),
            Fate::Unexplained(why) => said += &format!("survived, unexplained: {why}\n"),
            Fate::Open => said += "open\n",
        }
    }
    said
}

/// Outcome, share and reasons of the leading hypothesis, and the rivals' outcomes.
fn outcome(text: &str) -> String {
    let verdict = verdict(text);
    let hypothesis = &verdict.hypothesis;
    let share = hypothesis.share.map_or(String::new(), |share| format!(" {share:.2}"));
    let mut said = format!("{:?}{share}\n", hypothesis.outcome);
    for reason in &hypothesis.reasons {
        said += &format!("- {reason}\n");
    }
    for rival in &verdict.rivals {
        said += &format!("{:?}: {:?}\n", rival.name, rival.outcome);
    }
    said
}
