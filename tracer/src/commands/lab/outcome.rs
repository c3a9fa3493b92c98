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

/// What is wrong with a control's report; nothing if it came out.
pub(super) fn faults(control: &Control, report: &Value, agreement: &Agreement) -> Vec<String> {
    let Expected { reused_source_port, stale_rules, share, slowed, states, failures } =
        control.expected;
    let mut faults = Vec::new();
    let mut outcome = |name: &str, said: &Value, expected| {
        let expected = words::outcome_name(expected);
        if said != expected {
            faults.push(format!("{name} is {said}, not {expected}"));
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
            faults.push(format!("the share is {said:?}, not {least} to {most}"));
        }
    }
    let unseen = |row: &&Value| row["cause"] == Cause::Unseen.name() && row["late"] == false;
    let rows = || report["failed"].as_array().into_iter().flatten();
    let few_unseen = rows().filter(unseen).count() <= UNSEEN;
    let mut counts: BTreeMap<(Cause, bool), u64> = BTreeMap::new();
    for row in rows().filter(|row| !(few_unseen && unseen(row))) {
        let is_late = row["late"] == true;
        let kind = failures.iter().find(|kind| {
            row["cause"] == kind.cause.name()
                && kind.symptoms.iter().any(|symptom| row["symptom"] == symptom.name())
                && (if is_late { kind.late } else { kind.early }).is_some()
        });
        match kind {
            Some(kind) => *counts.entry((kind.cause, is_late)).or_default() += 1,
            None => faults.push(format!(
                "request {} failed with {} because of {} ({}): {}",
                row["request"],
                row["symptom"],
                row["cause"],
                if is_late { "late" } else { "early" },
                row["why"]
            )),
        }
    }
    for kind in failures {
        for (least, is_late) in [(kind.early, false), (kind.late, true)] {
            let count = counts.get(&(kind.cause, is_late)).copied().unwrap_or(0);
            if least.is_some_and(|least| count < least) {
                faults.push(format!(
                    "{count} {} failures because of {}, not {} at least",
                    if is_late { "late" } else { "early" },
                    kind.cause.name(),
                    least.unwrap_or(0)
                ));
            }
        }
    }
    let survived = report["survived"].as_array().map_or(0, Vec::len);
    if survived < slowed {
        faults.push(format!("{survived} were slowed by a stale entry, not {slowed} at least"));
    }
    for state in states {
        let met = format!(" in {state} to ");
        if !rows().any(|row| row["why"].as_str().is_some_and(|why| why.contains(&met))) {
            faults.push(format!("no failed request met an entry in {state}"));
        }
    }
    // A look at the table a second can't tell everything where ports come round many times a second.
    if agreement.undetermined.len() > (rows().count() / UNDETERMINED).max(1) {
        let all = agreement.undetermined.iter();
        faults.extend(all.map(|request| format!("the truth does not know {request}")));
    }
    let contradicts = |it: &&String| !(few_unseen && it.contains("the report says unseen;"));
    let contradicting = agreement.disagreements.iter().filter(contradicts);
    faults.extend(contradicting.map(|it| format!("the truth contradicts {it}")));
    faults
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
    use crate::report::fixture;

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
