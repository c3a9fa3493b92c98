//! Whether tracer's report of a lab run says the same of each request as the lab's own truth does.
//!
//! The two share nothing but the requests' numbers: the report comes from packets, the truth from the
//! client's log, `conntrack -L` and the lab's own record of addresses and rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::lab::DeadAddress;
use crate::lab::truth::{ClientRow, Judged, Judgement, Truth, judge};
use crate::model::MonoNs;
use crate::verdict::Cause;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The entry's age is read by the tracer from jiffies and by the truth from the table and the client's log.
/// Between the two lie the time from the request's start to its SYN, and a jiffy.
const TOLERANCE: f64 = 0.05;

/// What `tracer lab --truth` writes.
#[derive(Debug, Deserialize)]
struct TruthFile {
    lab: Truth,
    requests: Vec<ClientRow>,
}

/// What came of holding the two against each other.
#[derive(Debug, Default)]
pub struct Agreement {
    /// Requests that were compared.
    pub compared: usize,
    /// Of those, how many were judged as what.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Requests of which the truth can't say what happened.
    pub undetermined: Vec<String>,
    /// What the two say differently.
    pub disagreements: Vec<Disagreement>,
    /// Failed requests by cause, without those that the truth does not know: as the truth has it, as the report has it,
    /// and where both say so.
    pub causes: BTreeMap<String, Counts>,
}

/// A request of which the two say different things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Whether the report says that it did not see the request's packets: it knows less than the truth, and says nothing
    /// wrong.
    pub is_unseen: bool,
    /// The request, what the report says and what the truth says.
    pub text: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// How many requests failed of a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// By the truth.
    pub truth: u64,
    /// By the report.
    pub report: u64,
    /// By both.
    pub both: u64,
}

impl Counts {
    /// How many of those that the report says are so; none if it says it of none.
    pub fn precision(self) -> Option<f64> {
        (self.report > 0).then(|| self.both as f64 / self.report as f64)
    }

    /// How many of those that are so the report says; none if there are none.
    pub fn recall(self) -> Option<f64> {
        (self.truth > 0).then(|| self.both as f64 / self.truth as f64)
    }
}

impl Agreement {
    /// The failed requests of all causes together.
    pub fn total(&self) -> Counts {
        self.causes.values().fold(Counts::default(), |sum, counts| Counts {
            truth: sum.truth + counts.truth,
            report: sum.report + counts.report,
            both: sum.both + counts.both,
        })
    }
}

/// Compares request by request. Both are JSON texts; the times of `report` count from `began`.
///
/// # Errors
/// If one is not what `tracer lab` writes.
pub fn compare(truth: &str, report: &str, began: MonoNs) -> Result<Agreement, serde_json::Error> {
    let TruthFile { lab, requests } = serde_json::from_str(truth)?;
    Ok(hold(&lab, &requests, &serde_json::from_str(report)?, began))
}

/// The same of what is in memory.
pub fn hold(truth: &Truth, requests: &[ClientRow], report: &Value, began: MonoNs) -> Agreement {
    let failed = rows(&report["failed"]);
    let survived = rows(&report["survived"]);
    let mut agreement = Agreement::default();
    let judgements = judge(truth, requests);
    let known: BTreeSet<u64> = judgements.iter().map(|judgement| judgement.id).collect();
    for id in failed.keys().chain(survived.keys()).filter(|id| !known.contains(id)) {
        let text = format!("request {id} is in the report only");
        agreement.disagreements.push(Disagreement { is_unseen: false, text });
    }
    for Judgement { id, waited, judged } in &judgements {
        agreement.compared += 1;
        *agreement.kinds.entry(kind(judged)).or_default() += 1;
        let (failed, survived) = (failed.get(id).copied(), survived.get(id).copied());
        let said = failed.and_then(|row| row["cause"].as_str());
        let is = cause(judged, failed, truth.dead_address);
        if let Some(is) = is {
            agreement.causes.entry(is.to_owned()).or_default().truth += 1;
        }
        // Of what the truth does not know it can't say that the report is wrong.
        let is_known = !matches!(judged, Judged::Undetermined { .. });
        if let Some(said) = said.filter(|_| is_known) {
            let counts = agreement.causes.entry(said.to_owned()).or_default();
            counts.report += 1;
            counts.both += u64::from(is == Some(said));
        }
        if let Judged::Undetermined { why } = judged {
            agreement.undetermined.push(format!("request {id}: {why}"));
        } else if let Err(what) =
            agree(judged, failed, survived, truth.dead_address, began + *waited)
        {
            let text = format!("request {id}: {what}; the truth: {judged:?}");
            let is_unseen = said == Some(Cause::Unseen.name());
            agreement.disagreements.push(Disagreement { is_unseen, text });
        }
    }
    agreement
}

/// A report's rows by request.
fn rows(rows: &Value) -> BTreeMap<u64, &Value> {
    let all = rows.as_array().into_iter().flatten();
    all.filter_map(|row| Some((row["request"].as_u64()?, row))).collect()
}

/// What a SYN for a pod may fail of whose network is just being taken down. The packets of a pod that is not known to be
/// gone yet, or that another client still hears, show what became of the SYN and not why: nothing came back, or a
/// router knew no way; else the rules were late. Where another machine has the address at once and answers with a RST, that
/// looks as if the pod had turned it away.
fn going(dead: DeadAddress) -> &'static [&'static str] {
    match dead {
        DeadAddress::Unreachable => &["stale-rules", "unreachable"],
        DeadAddress::Silent => &["stale-rules", "pod-unanswered"],
        DeadAddress::Resets => &["stale-rules", "pod-unanswered", "pod-not-serving"],
    }
}

/// The cause that the truth tells, as a report names it; of several that are possible, the one that fits the row.
fn cause(judged: &Judged, row: Option<&Value>, dead: DeadAddress) -> Option<&'static str> {
    Some(match judged {
        Judged::MetStale { is_replied: true, .. } => "stale-replied-entry",
        Judged::MetStale { .. } => "stale-entry-reuse",
        Judged::FreshToDeadAddress { .. } => "stale-rules",
        Judged::FreshToGoingAddress { .. } => {
            let said = row.and_then(|row| row["cause"].as_str());
            going(dead).iter().copied().find(|cause| said == Some(cause)).unwrap_or("stale-rules")
        }
        Judged::RefusedByDeadAddress { or_pods, .. } => {
            let backend = row.and_then(|row| row["backend"].as_str());
            let is_pod =
                backend.is_some_and(|backend| or_pods.iter().any(|pod| pod.to_string() == backend));
            if is_pod { "pod-not-serving" } else { "stale-rules" }
        }
        Judged::RefusedByPod { .. } | Judged::CutByDyingPod { .. } => "pod-not-serving",
        Judged::RejectedWithoutEndpoints => "no-endpoints",
        Judged::DroppedByRule | Judged::CutOff { .. } => "dropped",
        Judged::Invalid => "invalid",
        Judged::MetOther { .. } => "wrong-pod",
        Judged::BacklogFull { .. } => "pod-unanswered",
        Judged::SlowPod
        | Judged::NotAccepted { .. }
        | Judged::LostItsEntry
        | Judged::CutOffMidway { .. } => "slow-answer",
        Judged::Unresolved | Judged::ResolvedTooLate => "dns",
        Judged::Local => "local-error",
        Judged::Ok
        | Judged::Slowed { .. }
        | Judged::Freed { .. }
        | Judged::SentAnew { .. }
        | Judged::Undetermined { .. } => return None,
    })
}

fn kind(judged: &Judged) -> &'static str {
    match judged {
        Judged::Ok => "ok",
        Judged::MetStale { .. } => "met a stale entry",
        Judged::Slowed { .. } => "slowed by a stale entry",
        Judged::Freed { .. } => "freed by a deletion",
        Judged::SentAnew { .. } => "slowed by its own entry",
        Judged::FreshToDeadAddress { .. } => "fresh to a dead address",
        Judged::FreshToGoingAddress { .. } => "fresh to an address that was just going",
        Judged::RefusedByPod { .. } => "refused by a pod",
        Judged::CutByDyingPod { .. } => "cut by a dying pod",
        Judged::RejectedWithoutEndpoints => "rejected without endpoints",
        Judged::RefusedByDeadAddress { .. } => "refused by a dead address",
        Judged::MetOther { .. } => "led to another app",
        Judged::CutOff { .. } => "lost by the network",
        Judged::CutOffMidway { .. } => "cut by the network",
        Judged::DroppedByRule => "dropped by a rule",
        Judged::Invalid => "invalid",
        Judged::SlowPod => "answered too late",
        Judged::Unresolved => "its name unresolved",
        Judged::ResolvedTooLate => "its name resolved too late",
        Judged::BacklogFull { .. } => "not heard by a full backlog",
        Judged::NotAccepted { .. } => "left in a full backlog",
        Judged::LostItsEntry => "lost its entry",
        Judged::Local => "local",
        Judged::Undetermined { .. } => "undetermined",
    }
}

fn agree(
    judged: &Judged,
    failed: Option<&Value>,
    survived: Option<&Value>,
    dead: DeadAddress,
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
        Judged::Freed { .. } | Judged::SentAnew { .. } => match failed {
            None => Ok(()),
            Some(row) => Err(format!("the report says {}", row["cause"])),
        },
        Judged::FreshToDeadAddress { backend } => {
            has_failed(&["stale-rules"], Some(backend.to_string())).map(drop)
        }
        Judged::FreshToGoingAddress { backend } => {
            has_failed(going(dead), Some(backend.to_string())).map(drop)
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
        Judged::RefusedByDeadAddress { backends, or_pods } => {
            let row = has_failed(&["stale-rules", "pod-not-serving"], None)?;
            let backend = row["backend"].as_str().unwrap_or_default();
            let those = match row["cause"].as_str() {
                Some("stale-rules") => backends,
                _ => or_pods,
            };
            match those.iter().any(|possible| possible.to_string() == backend) {
                true => Ok(()),
                false => Err(format!("the report says {} by {backend}", row["cause"])),
            }
        }
        Judged::MetOther { backend } => {
            has_failed(&["wrong-pod"], Some(backend.to_string())).map(drop)
        }
        Judged::CutOff { backend } => has_failed(&["dropped"], Some(backend.to_string())).map(drop),
        Judged::BacklogFull { backend } => {
            has_failed(&["pod-unanswered"], Some(backend.to_string())).map(drop)
        }
        Judged::CutOffMidway { backends } | Judged::NotAccepted { backends } => {
            let row = has_failed(&["slow-answer"], None)?;
            let backend = row["backend"].as_str().unwrap_or_default();
            match backends.iter().any(|possible| possible.to_string() == backend) {
                true => Ok(()),
                false => Err(format!("the report says that it went to {backend}")),
            }
        }
        Judged::Invalid => has_failed(&["invalid"], None).map(drop),
        Judged::DroppedByRule => has_failed(&["dropped"], None).map(drop),
        Judged::SlowPod | Judged::LostItsEntry => has_failed(&["slow-answer"], None).map(drop),
        Judged::Unresolved | Judged::ResolvedTooLate => has_failed(&["dns"], None).map(drop),
        Judged::Local => has_failed(&["local-error"], None).map(drop),
        Judged::Undetermined { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_syn_to_a_pod_that_is_just_going_fails_of_the_late_rules_or_of_what_its_address_does() {
        let backend = "10.100.1.20:8080".parse().expect("an address");
        let judged = Judged::FreshToGoingAddress { backend };
        let agrees = |cause: &str, dead| {
            let row = json!({ "cause": cause, "backend": backend.to_string() });
            let agrees = agree(&judged, Some(&row), None, dead, MonoNs(0)).is_ok();
            assert_eq!(super::cause(&judged, Some(&row), dead) == Some(cause), agrees, "{cause}");
            agrees
        };
        let causes = ["stale-rules", "pod-unanswered", "unreachable", "pod-not-serving", "dropped"];
        let those = |dead| causes.map(|cause| agrees(cause, dead));
        assert_eq!(those(DeadAddress::Silent), [true, true, false, false, false]);
        assert_eq!(those(DeadAddress::Resets), [true, true, false, true, false]);
        assert_eq!(those(DeadAddress::Unreachable), [true, false, true, false, false]);
    }
}
