//! Whether tracer's report of a lab run says the same of each request as the lab's own truth does.
//!
//! The two share nothing but the requests' numbers: the report comes from packets, the truth from the
//! client's log, `conntrack -L` and the lab's own record of addresses and rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;
use tracer::lab::truth::{ClientRow, Judged, Judgement, Truth, judge};
use tracer::model::MonoNs;

/// The entry's age is read by the tracer from jiffies and by the truth from the table and the client's log.
/// Between the two lie the time from the request's start to its SYN, and a jiffy.
const TOLERANCE: f64 = 0.05;

/// What `tracer lab --truth` writes.
#[derive(Debug, Deserialize)]
pub(crate) struct TruthFile {
    lab: Truth,
    requests: Vec<ClientRow>,
}

/// What came of holding the two against each other.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// Requests that were compared.
    pub(crate) compared: usize,
    /// Of those, how many were judged as what.
    pub(crate) kinds: BTreeMap<&'static str, usize>,
    /// Requests of which the truth can't say what happened.
    pub(crate) undetermined: Vec<String>,
    /// What the two say differently.
    pub(crate) disagreements: Vec<String>,
}

/// Compares request by request. Both are JSON texts; the times of `report` count from `began`.
pub(crate) fn compare(
    truth: &str,
    report: &str,
    began: MonoNs,
) -> Result<Agreement, serde_json::Error> {
    let truth: TruthFile = serde_json::from_str(truth)?;
    let report: Value = serde_json::from_str(report)?;
    let failed = rows(&report["failed"]);
    let survived = rows(&report["survived"]);
    let mut agreement = Agreement::default();
    let judgements = judge(&truth.lab, &truth.requests);
    let known: BTreeSet<u64> = judgements.iter().map(|judgement| judgement.id).collect();
    for id in failed.keys().chain(survived.keys()).filter(|id| !known.contains(id)) {
        agreement.disagreements.push(format!("request {id} is in the report only"));
    }
    for Judgement { id, judged } in &judgements {
        agreement.compared += 1;
        *agreement.kinds.entry(kind(judged)).or_default() += 1;
        let (failed, survived) = (failed.get(id).copied(), survived.get(id).copied());
        if let Judged::Undetermined { why } = judged {
            agreement.undetermined.push(format!("request {id}: {why}"));
        } else if let Err(what) = agree(judged, failed, survived, began) {
            agreement.disagreements.push(format!("request {id}: {what}; the truth: {judged:?}"));
        }
    }
    Ok(agreement)
}

/// A report's rows by request.
fn rows(rows: &Value) -> BTreeMap<u64, &Value> {
    let all = rows.as_array().into_iter().flatten();
    all.filter_map(|row| Some((row["request"].as_u64()?, row))).collect()
}

fn kind(judged: &Judged) -> &'static str {
    match judged {
        Judged::Ok => "ok",
        Judged::MetStale { .. } => "met a stale entry",
        Judged::Slowed { .. } => "slowed by a stale entry",
        Judged::Freed { .. } => "freed by a deletion",
        Judged::FreshToDeadAddress { .. } => "fresh to a dead address",
        Judged::RefusedByPod { .. } => "refused by a pod",
        Judged::CutByDyingPod { .. } => "cut by a dying pod",
        Judged::RejectedWithoutEndpoints => "rejected without endpoints",
        Judged::Local => "local",
        Judged::Undetermined { .. } => "undetermined",
    }
}

fn agree(
    judged: &Judged,
    failed: Option<&Value>,
    survived: Option<&Value>,
    began: MonoNs,
) -> Result<(), String> {
    let has_failed = |causes: &[&str], backend: Option<String>| {
        let row = failed.ok_or("the report does not count it as failed")?;
        let cause = row["cause"].as_str().unwrap_or_default();
        if !causes.contains(&cause) {
            return Err(format!("the report says {cause}"));
        }
        match backend {
            Some(backend) if row["backend"] != backend.as_str() => {
                Err(format!("the report says that it went to {}", row["backend"]))
            }
            _ => Ok(row),
        }
    };
    match judged {
        Judged::Ok => match (failed, survived) {
            (None, None) => Ok(()),
            (Some(row), _) => Err(format!("the report says {}", row["cause"])),
            (_, Some(row)) => Err(format!("the report says that it met {row}")),
        },
        Judged::MetStale { backend, is_replied: true, .. } => {
            has_failed(&["stale-replied-entry"], Some(backend.to_string())).map(drop)
        }
        Judged::MetStale { backend, made, is_replied: false } => {
            let row = has_failed(&["stale-entry-reuse"], Some(backend.to_string()))?;
            let start = row["start"].as_f64().ok_or("it has no start")?;
            let age = row["entry_age"].as_f64().ok_or("the entry has no age in the report")?;
            let within =
                made.from.seconds_from(began) - TOLERANCE..=made.to.seconds_from(began) + TOLERANCE;
            if within.contains(&(start - age)) {
                Ok(())
            } else {
                Err(format!("the report's entry was made at {:.3} s, not {within:?}", start - age))
            }
        }
        Judged::Slowed { backend, .. } => match (failed, survived) {
            (None, Some(row)) if row["backend"] == backend.to_string().as_str() => Ok(()),
            (None, Some(row)) => Err(format!("the report says that it met {}", row["backend"])),
            (None, None) => Err("the report does not say that it met an entry".to_owned()),
            (Some(row), _) => Err(format!("the report says {}", row["cause"])),
        },
        Judged::Freed { .. } => match failed {
            None => Ok(()),
            Some(row) => Err(format!("the report says {}", row["cause"])),
        },
        Judged::FreshToDeadAddress { backend } => {
            has_failed(&["stale-rules"], Some(backend.to_string())).map(drop)
        }
        Judged::RefusedByPod { backends } | Judged::CutByDyingPod { backends } => {
            let row = has_failed(&["pod-not-serving"], None)?;
            let backend = row["backend"].as_str().unwrap_or_default();
            match backends.iter().any(|possible| possible.to_string() == backend) {
                true => Ok(()),
                false => Err(format!("the report says that it went to {backend}")),
            }
        }
        Judged::RejectedWithoutEndpoints => has_failed(&["no-endpoints"], None).map(drop),
        Judged::Local => has_failed(&["local-error"], None).map(drop),
        Judged::Undetermined { .. } => Ok(()),
    }
}
