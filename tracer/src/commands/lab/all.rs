//! All controls, one after the other, and how each came out: as a table or as JSON, described by
//! docs/controls.schema.json.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::Context;
use serde::Serialize;

use super::agreement::{Agreement, Counts};
use super::controls::{CONTROLS, Control};
use super::outcome::Faults;
use super::progress::Progress;
use super::{Options, UNSTAGED, compare, outcome};
use crate::cli::{Exit, note};
use crate::report::{Report, words};
use crate::sys::stop::Stop;

/// So often a control is run of which too little comes about.
const TRIES: u32 = 3;

/// How all controls came out.
#[derive(Debug, Serialize)]
struct Summary {
    /// Of this form.
    schema: u32,
    /// In the order of the table of controls.
    controls: Vec<Row>,
}

/// How a control came out.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    about: &'static str,
    came_out: bool,
    /// How often it was run: again where too little of it had come about, and nothing else was wrong.
    tries: u32,
    requests: u64,
    failed: u64,
    late: u64,
    /// What must become of the reused source port.
    expected: &'static str,
    /// What the report says of it.
    found: &'static str,
    /// How much of the late failures it explains; none if there are none.
    share: Option<f64>,
    /// Requests of which the lab's own truth can't say why they failed.
    undetermined: usize,
    /// Failed requests by cause, as the truth has it, as the report has it, and where both say so.
    causes: BTreeMap<String, Counts>,
    /// What is wrong.
    faults: Vec<String>,
}

impl Row {
    fn new(
        control: &Control,
        tries: u32,
        report: &Report,
        agreement: &Agreement,
        faults: &Faults,
    ) -> Row {
        Row {
            name: control.name,
            about: control.about,
            came_out: faults.is_empty(),
            tries,
            requests: report.requests.total,
            failed: report.requests.failed,
            late: report.requests.late,
            expected: words::outcome_name(control.expected.reused_source_port),
            found: words::outcome_name(report.hypothesis.outcome),
            share: report.hypothesis.share,
            undetermined: agreement.undetermined.len(),
            causes: agreement.causes.clone(),
            faults: faults.all().cloned().collect(),
        }
    }

    fn total(&self) -> Counts {
        Agreement { causes: self.causes.clone(), ..Agreement::default() }.total()
    }
}

/// Runs all controls that there are for the family, and says how they came out.
///
/// # Errors
/// If one could not be run or did not come out, or it was interrupted; what came out by then is said before.
pub(super) fn run(options: &Options, stop: &Stop) -> anyhow::Result<Exit> {
    let family = options.cluster.settings(options.timeout)?.family;
    let mut summary = Summary { schema: 1, controls: Vec::new() };
    let mut ended = Ok(());
    for control in CONTROLS {
        if !control.is_for(family) {
            note(format_args!("left out: the control {} is for IPv4", control.name));
            continue;
        }
        let row =
            tried(options, &control, stop).with_context(|| format!("the control {}", control.name));
        if stop.is_requested() {
            // A run that was cut short says nothing.
            ended = Err(anyhow::anyhow!("interrupted in the control {}", control.name));
            break;
        }
        match row {
            Ok(row) => {
                let how = if row.came_out { "came out" } else { "did not come out" };
                note(format_args!("the control {} {how}", control.name));
                for fault in row.faults.iter().take(super::FAULTS) {
                    note(format_args!("{}: {fault}", control.name));
                }
                summary.controls.push(row);
            }
            Err(error) => {
                ended = Err(error);
                break;
            }
        }
    }
    let text = if options.judging.is_text() { table(&summary) } else { json(&summary) };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("printing the summary")?;
    ended?;
    let failed: Vec<&str> =
        summary.controls.iter().filter(|row| !row.came_out).map(|row| row.name).collect();
    anyhow::ensure!(failed.is_empty(), "did not come out: {}", failed.join(", "));
    Ok(Exit::Done)
}

/// Runs a control until enough of it comes about, a few times at most.
fn tried(options: &Options, control: &Control, stop: &Stop) -> anyhow::Result<Row> {
    let mut tries = 0;
    loop {
        tries += 1;
        let plan = options.plan(Some(control))?;
        let run = options.once(&plan, stop, &Progress::new(plan.duration))?;
        let (report, agreement, faults) = compare(control, &run)?;
        if tries < TRIES && faults.is_unstaged() && !stop.is_requested() {
            note(format_args!("the control {} {UNSTAGED}, and is run again:", control.name));
            for fault in &faults.unstaged {
                note(format_args!("{}: {fault}", control.name));
            }
            continue;
        }
        return Ok(Row::new(control, tries, &report, &agreement, &faults));
    }
}

fn json(summary: &Summary) -> String {
    let mut text =
        serde_json::to_string_pretty(summary).expect("names and numbers are always JSON");
    text.push('\n');
    text
}

fn table(summary: &Summary) -> String {
    let mut text = format!(
        "{:<26} {:>8} {:>6} {:<13} {:<13} {:>9} {:>8}  verdict\n",
        "control", "requests", "failed", "expected", "found", "precision", "recall"
    );
    for row in &summary.controls {
        let total = row.total();
        // Writing to a text can't fail.
        let _ = writeln!(
            text,
            "{:<26} {:>8} {:>6} {:<13} {:<13} {:>9} {:>8}  {}",
            row.name,
            row.requests,
            row.failed,
            row.expected,
            row.found,
            outcome::percent(total.precision()),
            outcome::percent(total.recall()),
            if row.came_out { "came out" } else { "DID NOT COME OUT" },
        );
        if row.tries > 1 {
            let _ = writeln!(text, "{:<26} at the {} try", "", nth(row.tries));
        }
    }
    text
}

/// A small ordinal.
fn nth(number: u32) -> String {
    let ending = match number {
        1 => "st",
        2 => "nd",
        3 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::schema::Schema;
    use expect_test::expect;

    fn summary() -> Summary {
        let counts = |truth, report, both| Counts { truth, report, both };
        let row = |control: Control, found, causes: &[(&str, Counts)], faults: &[&str]| Row {
            name: control.name,
            about: control.about,
            came_out: faults.is_empty(),
            tries: if faults.is_empty() { 1 } else { TRIES },
            requests: 9_855,
            failed: causes.iter().map(|(_, counts)| counts.report).sum(),
            late: 10,
            expected: words::outcome_name(control.expected.reused_source_port),
            found,
            share: Some(0.5),
            undetermined: 0,
            causes: causes.iter().map(|(name, counts)| ((*name).to_owned(), *counts)).collect(),
            faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        };
        let [first, second, ..] = CONTROLS;
        let causes = [("stale-entry-reuse", counts(20, 20, 20)), ("stale-rules", counts(4, 5, 4))];
        Summary {
            schema: 1,
            controls: vec![
                row(first, "supported", &causes, &[]),
                row(second, "inconclusive", &[], &["reused-source-port is inconclusive"]),
            ],
        }
    }

    #[test]
    fn each_control_has_a_line() {
        expect![[r#"
            control                    requests failed expected      found         precision   recall  verdict
            stale-entries                  9855     25 supported     supported        96.0 %  100.0 %  came out
            no-rollout                     9855      0 not-observed  inconclusive          –        –  DID NOT COME OUT
                                       at the 3rd try
        "#]].assert_eq(&table(&summary()));
    }

    #[test]
    fn the_json_keeps_to_its_schema() {
        let schema = Schema::new(include_str!("../../../../docs/controls.schema.json"));
        let text = json(&summary());
        schema.check(&text).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let other = text.replace("\"came_out\": true", "\"came_out\": \"yes\"");
        assert!(schema.check(&other).is_err(), "a schema that takes anything is none");
    }
}
