//! Whether a control came out as it must: by its expectation, and request by request by the lab's own truth.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::agreement::Agreement;
use super::controls::{Control, Expected};
use crate::report::{Report, words};
use crate::verdict::{Cause, VerdictOutcome};

/// Of so many failed requests the truth may not know one; and one in any case.
const UNDETERMINED: usize = 100;

/// So many requests of a control may be `unseen`: seldom, on a machine with more to do than it can, a SYN to a pod that is
/// just going leaves no record, and nothing says that one was lost. The report says that it was not seen, which is true;
/// the table counts it.
const UNSEEN: usize = 1;

/// What is wrong with how a control came out.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// What the report says and must not: the expectation or the truth contradicts it.
    pub(super) wrong: Vec<String>,
    /// What did not come about: how many requests meet what they are to meet is chance, and on a machine with more to do
    /// than it can even more so. Such a run proves nothing either way.
    pub(super) unstaged: Vec<String>,
}

impl Faults {
    /// Whether it came out.
    pub(super) fn is_empty(&self) -> bool {
        self.wrong.is_empty() && self.unstaged.is_empty()
    }

    /// Whether nothing is wrong but that too little came about.
    pub(super) fn is_unstaged(&self) -> bool {
        self.wrong.is_empty() && !self.unstaged.is_empty()
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.wrong.iter().chain(&self.unstaged)
    }
}

/// What is wrong with a control's report; nothing if it came out.
pub(super) fn faults(control: &Control, report: &Value, agreement: &Agreement) -> Faults {
    let (counts, mut wrong) = counted(control, report);
    let few_unseen = unseen(report) <= UNSEEN;
    // A look at the table a second can't tell everything where ports come round many times a second.
    let failed = rows(report).count();
    if agreement.undetermined.len() > (failed / UNDETERMINED).max(1) {
        let all = agreement.undetermined.iter();
        wrong.extend(all.map(|request| format!("the truth does not know {request}")));
    }
    let contradicting = agreement.disagreements.iter().filter(|it| !(few_unseen && it.is_unseen));
    wrong.extend(contradicting.map(|it| format!("the truth contradicts {it}")));

    let mut unstaged = too_few(control, report, &counts);
    let concluded = wrongly_concluded(control, report);
    // What is concluded from less than was to come about may be something else; so may what is concluded although the
    // tracer says that it lost some.
    let has_losses = report["losses"].as_array().is_some_and(|losses| !losses.is_empty());
    let excused = !unstaged.is_empty() || has_losses;
    if excused {
        unstaged.extend(concluded)
    } else {
        wrong.extend(concluded)
    }
    Faults { wrong, unstaged }
}

/// The failed requests of a report.
fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["failed"].as_array().into_iter().flatten()
}

fn is_early_unseen(row: &Value) -> bool {
    row["cause"] == Cause::Unseen.name() && row["late"] == false
}

/// Early failures that the tracer did not see.
fn unseen(report: &Value) -> usize {
    rows(report).filter(|row| is_early_unseen(row)).count()
}

/// How many failed because of what, early and late, of what may fail in this control; and what may not.
fn counted(control: &Control, report: &Value) -> (BTreeMap<(Cause, bool), u64>, Vec<String>) {
    let few_unseen = unseen(report) <= UNSEEN;
    let mut counts: BTreeMap<(Cause, bool), u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in rows(report).filter(|row| !(few_unseen && is_early_unseen(row))) {
        let is_late = row["late"] == true;
        let kind = control.expected.failures.iter().find(|kind| {
            row["cause"] == kind.cause.name()
                && kind.symptoms.iter().any(|symptom| row["symptom"] == symptom.name())
                && (if is_late { kind.late } else { kind.early }).is_some()
        });
        match kind {
            Some(kind) => *counts.entry((kind.cause, is_late)).or_default() += 1,
            None => wrong.push(format!(
                "request {} failed with {} because of {} ({}): {}",
                row["request"],
                row["symptom"],
                row["cause"],
                if is_late { "late" } else { "early" },
                row["why"]
            )),
        }
    }
    (counts, wrong)
}

/// Of what there is too little in a report.
fn too_few(
    control: &Control,
    report: &Value,
    counts: &BTreeMap<(Cause, bool), u64>,
) -> Vec<String> {
    let mut too_few = Vec::new();
    for kind in control.expected.failures {
        for (least, is_late) in [(kind.early, false), (kind.late, true)] {
            let count = counts.get(&(kind.cause, is_late)).copied().unwrap_or(0);
            if let Some(least) = least.filter(|least| count < *least) {
                too_few.push(format!(
                    "{count} {} failures because of {}, not {least} at least",
                    if is_late { "late" } else { "early" },
                    kind.cause.name(),
                ));
            }
        }
    }
    let survived = report["survived"].as_array().map_or(0, Vec::len);
    let slowed = control.expected.slowed;
    if survived < slowed {
        too_few.push(format!("{survived} were slowed by a stale entry, not {slowed} at least"));
    }
    for state in control.expected.states {
        let met = format!(" in {state} to ");
        if !rows(report).any(|row| row["why"].as_str().is_some_and(|why| why.contains(&met))) {
            too_few.push(format!("no failed request met an entry in {state}"));
        }
    }
    too_few
}

/// What a report concludes otherwise than it must.
fn wrongly_concluded(control: &Control, report: &Value) -> Vec<String> {
    let Expected { reused_source_port, stale_rules, share, .. } = control.expected;
    let mut wrong = Vec::new();
    let mut outcome = |name: &str, said: &Value, expected| {
        let expected = words::outcome_name(expected);
        if said != expected {
            wrong.push(format!("{name} is {said}, not {expected}"));
        }
    };
    outcome("reused-source-port", &report["hypothesis"]["outcome"], reused_source_port);
    if let Some(expected) = stale_rules {
        let rivals = report["rivals"].as_array().into_iter().flatten();
        let rival = rivals.into_iter().find(|rival| rival["name"] == "stale-rules");
        outcome("stale-rules", rival.map_or(&Value::Null, |rival| &rival["outcome"]), expected);
    }
    if let Some((least, most)) = share {
        let said = report["hypothesis"]["share"].as_f64();
        if said.is_none_or(|said| said < least || said > most) {
            wrong.push(format!("the share is {said:?}, not {least} to {most}"));
        }
    }
    wrong
}

/// Late causes that a headline leaves out which says that reused source ports explain late failures: a reader of that
/// line alone would take them to be all there is.
pub(super) fn unnamed(report: &Report, headline: &str) -> Vec<String> {
    if report.hypothesis.outcome != VerdictOutcome::Supported {
        return Vec::new();
    }
    let late = report.failures.late.iter();
    let others = late.filter(|(cause, count)| !cause.is_reused_port() && **count > 0);
    let named = |cause: &Cause, count: u64| {
        headline.contains(&format!("{} {}", words::count(count), cause.name()))
    };
    others
        .filter(|(cause, count)| !named(cause, **count))
        .map(|(cause, count)| format!("the headline does not name {count} {cause}: {headline}"))
        .collect()
}

/// Precision and recall by cause, as a table.
pub(super) fn table(agreement: &Agreement) -> String {
    let mut text = format!(
        "{:<22} {:>6} {:>8} {:>10} {:>8}\n",
        "cause", "truth", "verdict", "precision", "recall"
    );
    for (cause, counts) in &agreement.causes {
        let (precision, recall) = (percent(counts.precision()), percent(counts.recall()));
        // Writing to a text can't fail.
        let _ = writeln!(
            text,
            "{cause:<22} {:>6} {:>8} {precision:>10} {recall:>8}",
            counts.truth, counts.report
        );
    }
    if !agreement.undetermined.is_empty() {
        let _ = writeln!(text, "{} of which the truth does not know", agreement.undetermined.len());
    }
    text
}

/// A share for people.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::lab::agreement::Disagreement;
    use crate::report::fixture;
    use serde_json::json;

    /// What is wrong with a report of `stale-entries`, whose ports come round.
    fn faults_of(report: &Value, agreement: &Agreement) -> (Vec<String>, Vec<String>) {
        let control: Control = "stale-entries".parse().expect("it is in the table");
        let Faults { wrong, unstaged } = faults(&control, report, agreement);
        (wrong, unstaged)
    }

    fn report(outcome: &str, late: usize, more: &[Value]) -> Value {
        let row = |cause: &str, late: bool| json!({ "cause": cause, "symptom": "connect-timeout", "late": late });
        let mut failed = vec![row("stale-rules", false); 3];
        failed.extend(vec![row("stale-entry-reuse", true); late]);
        failed.extend_from_slice(more);
        json!({
            "hypothesis": { "outcome": outcome, "share": 1.0 },
            "rivals": [{ "name": "stale-rules", "outcome": "refuted" }],
            "failed": failed,
            "survived": [],
            "losses": [],
        })
    }

    #[test]
    fn too_little_is_no_fault_of_the_verdict_and_neither_is_what_it_concludes_from_that() {
        let none = Agreement::default();
        assert_eq!(faults_of(&report("supported", 3, &[]), &none), (vec![], vec![]));
        let (wrong, unstaged) = faults_of(&report("not-observed", 0, &[]), &none);
        let few = "0 late failures because of stale-entry-reuse, not 3 at least";
        let concluded = "reused-source-port is \"not-observed\", not supported";
        assert_eq!((wrong, unstaged), (vec![], vec![few.to_owned(), concluded.to_owned()]));
    }

    #[test]
    fn a_wrong_conclusion_from_enough_is_a_fault_unless_events_were_lost() {
        let none = Agreement::default();
        let mut inconclusive = report("inconclusive", 3, &[]);
        assert_eq!(faults_of(&inconclusive, &none).0.len(), 1);
        inconclusive["losses"] = json!(["12 events were lost"]);
        let (wrong, unstaged) = faults_of(&inconclusive, &none);
        assert_eq!((wrong.len(), unstaged.len()), (0, 1));
    }

    #[test]
    fn a_wrong_cause_and_a_contradiction_are_faults_however_little_came_about() {
        let other =
            json!({ "request": 7, "cause": "dropped", "symptom": "connect-timeout", "late": true });
        let disagreement =
            Disagreement { is_unseen: false, text: "request 8: otherwise".to_owned() };
        let agreement = Agreement { disagreements: vec![disagreement], ..Agreement::default() };
        let (wrong, unstaged) = faults_of(&report("not-observed", 0, &[other]), &agreement);
        assert!(wrong[0].starts_with("request 7 failed with \"connect-timeout\""), "{wrong:?}");
        assert_eq!(wrong[1..], ["the truth contradicts request 8: otherwise"]);
        assert_eq!(unstaged.len(), 2);
    }

    #[test]
    fn one_early_failure_may_be_unseen_and_no_late_one() {
        let unseen =
            |late| json!({ "cause": "unseen", "symptom": "connect-timeout", "late": late });
        let disagreement = Disagreement { is_unseen: true, text: "request 8: unseen".to_owned() };
        let agreement = Agreement { disagreements: vec![disagreement], ..Agreement::default() };
        let faults = |more: &[Value]| faults_of(&report("supported", 3, more), &agreement).0.len();
        assert_eq!(faults(&[unseen(false)]), 0);
        assert_eq!(faults(&[unseen(false), unseen(false)]), 3);
        assert_eq!(faults(&[unseen(true)]), 1);
    }

    #[test]
    fn a_headline_must_name_the_late_causes_that_reused_ports_are_not() {
        let mut report = fixture::supported();
        report.requests.late += 1_007;
        report.failures.late.extend([(Cause::Dropped, 1_000), (Cause::Dns, 7)]);
        assert_eq!(unnamed(&report, &words::verdict(&report)), [""; 0]);
        let headline = "51 late failures came from a reused source port. The others: 7 dns.";
        let said = format!("the headline does not name 1000 dropped: {headline}");
        assert_eq!(unnamed(&report, headline), [said]);
    }
}
