//! What one run of the matrix came to.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Serialize;

use crate::commands::judging;
use crate::commands::lab::{Run, agreement};
use crate::model::{MonoNs, RequestId, Symptom};
use crate::report::Report;
use crate::verdict::{Cause, VerdictOutcome};

/// What one run came to. Times are seconds since its rollout started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Came {
    /// Requests that ended.
    pub(super) requests: u64,
    /// Those that failed.
    pub(super) failed: u64,
    /// Of those, how many started after the rollout was complete.
    pub(super) failed_after_rollout: u64,
    /// Of those, how many were late.
    pub(super) late: u64,
    /// Requests that succeeded, but only by a retransmission.
    pub(super) slowed: u64,
    /// When the rollout was complete, as `kubectl rollout status` has it; none if the run ended before.
    pub(super) rollout_complete: Option<f64>,
    /// When the last old pod's network was gone; none if the run ended before.
    pub(super) last_old_pod_gone: Option<f64>,
    /// What became of the leading hypothesis.
    pub(super) outcome: VerdictOutcome,
    /// The failed requests by what the client saw and why.
    pub(super) causes: Vec<CauseRow>,
    /// Each failed request.
    pub(super) failures: Vec<Failed>,
    /// How the lab's own truth compares with the verdict.
    pub(super) truth: Compared,
}

/// Failed requests of one symptom and cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CauseRow {
    /// What the client saw.
    pub(super) symptom: Symptom,
    /// Why.
    pub(super) cause: Cause,
    /// How many.
    pub(super) count: u64,
    /// How many of them started after the rollout was complete.
    pub(super) after_rollout: u64,
    /// When the first of them started.
    pub(super) first: f64,
    /// When the last of them started.
    pub(super) last: f64,
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Failed {
    /// Which.
    pub(super) request: RequestId,
    /// When it started.
    pub(super) start: f64,
    /// How long it took, in seconds.
    pub(super) total: f64,
    /// What the client saw.
    pub(super) symptom: Symptom,
    /// Why.
    pub(super) cause: Cause,
    /// The pod that it went to, if one is known.
    pub(super) pod: Option<String>,
}

/// The verdict, request by request, beside what the lab knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Compared {
    /// Requests that were compared.
    pub(super) requests: u64,
    /// Of how many the lab can't say what became of them.
    pub(super) undetermined: u64,
    /// Where the two differ, a sentence each.
    pub(super) disagreements: Vec<String>,
}

impl Came {
    /// What this run came to.
    ///
    /// # Errors
    /// If its trace was cut short, or the rollout never started.
    pub(super) fn new(run: Run) -> anyhow::Result<Came> {
        run.recorded.context("the trace file is cut short")?;
        let truth = run.truth.context("the lab kept no record")?;
        let report = judging::report(&run.header, &run.timeline, &run.judging);
        let value = serde_json::to_value(&report).context("reading our own report")?;
        let began = run.header.began;
        let agreement = agreement::hold(&truth.lab, &truth.requests, &value, began);
        let compared = Compared {
            requests: agreement.compared as u64,
            undetermined: agreement.undetermined.len() as u64,
            disagreements: agreement.disagreements.iter().map(ToString::to_string).collect(),
        };
        let lab = &truth.lab;
        let started = lab.rollout_started.context("its rollout did not start")?;
        let since = |time: MonoNs| time.seconds_from(started);
        let old = lab.pods.iter().filter(|pod| pod.asked.is_some());
        let gone: Option<Vec<MonoNs>> = old.map(|pod| pod.disconnected).collect();
        let last = gone.and_then(|gone| gone.into_iter().max());
        let times = Times {
            started: started.seconds_from(began),
            complete: lab.rollout_finished.map(since),
            last_old_pod_gone: last.filter(|_| lab.rollout_finished.is_some()).map(since),
        };
        Ok(Came::of(&report, times, compared))
    }

    fn of(report: &Report, times: Times, truth: Compared) -> Came {
        let Times { started, complete, last_old_pod_gone } = times;
        let is_after = |start: f64| complete.is_some_and(|complete| start > complete);
        let rows = report.failed.iter();
        let failures: Vec<Failed> = rows
            .map(|row| Failed {
                request: row.request,
                start: row.start - started,
                total: row.total,
                symptom: row.symptom,
                cause: row.cause,
                pod: row.pod.clone(),
            })
            .collect();
        let mut causes: BTreeMap<(Cause, Symptom), CauseRow> = BTreeMap::new();
        for &Failed { start, symptom, cause, .. } in &failures {
            let row = causes.entry((cause, symptom)).or_insert(CauseRow {
                symptom,
                cause,
                count: 0,
                after_rollout: 0,
                first: start,
                last: start,
            });
            row.count += 1;
            row.after_rollout += u64::from(is_after(start));
            row.first = row.first.min(start);
            row.last = row.last.max(start);
        }
        Came {
            requests: report.requests.total,
            failed: report.requests.failed,
            failed_after_rollout: failures.iter().filter(|row| is_after(row.start)).count() as u64,
            late: report.requests.late,
            slowed: report.requests.slowed,
            rollout_complete: complete,
            last_old_pod_gone,
            outcome: report.hypothesis.outcome,
            causes: causes.into_values().collect(),
            failures,
            truth,
        }
    }
}

/// When a rollout started, since the trace began; and the rest since then. In seconds.
struct Times {
    started: f64,
    complete: Option<f64>,
    last_old_pod_gone: Option<f64>,
}
