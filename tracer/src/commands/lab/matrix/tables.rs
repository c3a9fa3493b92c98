//! The matrix as two tables for people, with the cause of every failure.

use std::collections::BTreeMap;

use super::cell::{Came, CauseRow};
use super::document::{Document, RunRow, SetupRow, Table};
use crate::commands::lab::Client;
use crate::model::Symptom;
use crate::report::words::count;
use crate::verdict::Cause;

/// Between the values of two runs.
const BETWEEN: &str = " / ";
/// Where there is no value.
const NONE: &str = "–";
/// Between two columns.
const GAP: &str = "  ";

/// The tables.
pub(super) fn render(document: &Document) -> String {
    let mut text = format!(
        "{} s of load each, the rollout {} s in; {} workers, a timeout of {} s{}\n",
        document.duration.as_secs_f64(),
        document.rollout_after.as_secs_f64(),
        document.workers,
        document.timeout.as_secs_f64(),
        match document.runs {
            1 => String::new(),
            runs => {
                let runs: Vec<String> = (1..=runs).map(|run| run.to_string()).collect();
                format!("; run {}", runs.join(BETWEEN))
            }
        }
    );
    for table in &document.tables {
        render_table(&mut text, table);
    }
    text.push('\n');
    text.push_str(&truth(document));
    text
}

fn render_table(text: &mut String, table: &Table) {
    let client = Client::ALL.into_iter().find(|client| client.name() == table.client);
    text.push_str(&format!("\n{}: {}\n\n", table.client, client.map_or("", Client::about)));
    let mut rows = vec![
        ["", "", "", "of those after", "rollout status", "last old pod"].map(str::to_owned),
        ["setup", "requests", "failed", "the rollout", "returns after", "gone after"]
            .map(str::to_owned),
    ];
    for SetupRow { setup, runs } in &table.setups {
        let times = |of: fn(&Came) -> Option<f64>| {
            let all = each(runs, |came| of(came).map_or(NONE.to_owned(), |s| format!("{s:.1}")));
            if all == NONE { all } else { format!("{all} s") }
        };
        rows.push([
            (*setup).to_owned(),
            each(runs, |came| count(came.requests)),
            each(runs, |came| count(came.failed)),
            each(runs, |came| count(came.failed_after_rollout)),
            times(|came| came.rollout_complete),
            times(|came| came.last_old_pod_gone),
        ]);
    }
    align(text, &rows, 1);
    let mut rows = vec![
        ["", "", "", "", "of those after", "started after the"].map(str::to_owned),
        ["setup", "symptom", "cause", "failed", "the rollout", "rollout did"].map(str::to_owned),
    ];
    for SetupRow { setup, runs } in &table.setups {
        for (nth, ((cause, symptom), of_runs)) in causes(runs).into_iter().enumerate() {
            let each = |of: fn(&CauseRow) -> u64| {
                let all = of_runs.iter().map(|row| row.map_or(0, of));
                all.map(count).collect::<Vec<_>>().join(BETWEEN)
            };
            let first = of_runs.iter().flatten().map(|row| row.first).fold(f64::MAX, f64::min);
            let last = of_runs.iter().flatten().map(|row| row.last).fold(f64::MIN, f64::max);
            rows.push([
                if nth == 0 { (*setup).to_owned() } else { String::new() },
                symptom.to_string(),
                cause.name().to_owned(),
                each(|row| row.count),
                each(|row| row.after_rollout),
                format!("{first:.1} to {last:.1} s"),
            ]);
        }
    }
    if rows.len() > 2 {
        text.push('\n');
        align(text, &rows, 3);
    }
    for SetupRow { setup, runs } in &table.setups {
        for run in runs {
            if let Some(error) = &run.error {
                text.push_str(&format!("\n{setup}, run {}, failed: {error}\n", run.run));
            }
        }
    }
}

/// What the runs that are over say, in the order of the runs.
fn each(runs: &[RunRow], of: impl Fn(&Came) -> String) -> String {
    if runs.iter().all(|run| run.result.is_none()) {
        return NONE.to_owned();
    }
    let all = runs.iter().map(|run| run.result.as_ref().map_or(NONE.to_owned(), &of));
    all.collect::<Vec<_>>().join(BETWEEN)
}

/// The failures of those runs that are over, by what they are; for each run a row, if it had such failures.
fn causes(runs: &[RunRow]) -> BTreeMap<(Cause, Symptom), Vec<Option<&CauseRow>>> {
    let over: Vec<&Came> = runs.iter().filter_map(|run| run.result.as_ref()).collect();
    let mut causes: BTreeMap<(Cause, Symptom), Vec<Option<&CauseRow>>> = BTreeMap::new();
    for (place, came) in over.iter().enumerate() {
        for row in &came.causes {
            let of_runs = causes.entry((row.cause, row.symptom)).or_default();
            of_runs.resize(over.len(), None);
            of_runs[place] = Some(row);
        }
    }
    causes
}

/// How far the verdicts agree with what the lab itself knows, over all runs.
fn truth(document: &Document) -> String {
    let runs = document.tables.iter().flat_map(|table| &table.setups).flat_map(|row| &row.runs);
    let (mut requests, mut failed, mut unseen, mut undetermined) = (0, 0, 0, 0);
    let mut disagreements = Vec::new();
    for came in runs.filter_map(|run| run.result.as_ref()) {
        requests += came.truth.requests;
        failed += came.failed;
        undetermined += came.truth.undetermined;
        let unknown = came.causes.iter().filter(|row| row.cause == Cause::Unseen);
        unseen += unknown.map(|row| row.count).sum::<u64>();
        disagreements.extend(&came.truth.disagreements);
    }
    let mut text = format!(
        "{} of {} failures have a cause. By the lab's own truth, {} of {} requests are judged otherwise; of {} it \
         does not know.\n",
        count(failed - unseen),
        count(failed),
        count(disagreements.len() as u64),
        count(requests),
        count(undetermined)
    );
    for disagreement in disagreements {
        text.push_str(&format!("judged otherwise: {disagreement}\n"));
    }
    text
}

/// The rows in columns, of which the first ones are to the left and the others to the right.
fn align<const N: usize>(text: &mut String, rows: &[[String; N]], left: usize) {
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    for row in rows {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::document::tests::document;
    use super::*;

    #[test]
    fn what_is_there_is_said_with_the_cause_of_each_failure_and_what_is_missing_left_open() {
        expect![[r#"
            50 s of load each, the rollout 5 s in; 10 workers, a timeout of 3 s; run 1 / 2

            fresh: each request on a connection of its own

                                                            of those after  rollout status   last old pod
            setup                         requests  failed     the rollout   returns after     gone after
            naive                        8,003 / –   3 / –           3 / –       9.0 / – s        – / – s
            readiness                8,012 / 8,009  12 / 9          12 / 9     9.0 / 9.0 s        – / – s
            readiness-drain          8,000 / 8,000   0 / 0           0 / 0     9.0 / 9.0 s  14.1 / 14.1 s
            readiness-prestop        8,000 / 8,000   0 / 0           0 / 0     9.0 / 9.0 s  14.1 / 14.1 s
            readiness-prestop-drain  8,000 / 8,000   0 / 0           0 / 0     9.0 / 9.0 s  14.1 / 14.1 s
            readiness-no-handler     8,000 / 8,000   0 / 0           0 / 0     9.0 / 9.0 s  14.1 / 14.1 s

                                                                   of those after  started after the
            setup      symptom          cause              failed     the rollout        rollout did
            naive      connect-timeout  stale-entry-reuse       3               3       9.5 to 9.5 s
            readiness  connect-timeout  stale-entry-reuse  12 / 9          12 / 9       9.5 to 9.5 s

            naive, run 2, failed: pod web-1-1 is late

            keep-alive: one connection for each worker, until either side closes it

                                                       of those after  rollout status  last old pod
            setup                    requests  failed     the rollout   returns after    gone after
            naive                           –       –               –               –             –
            readiness                       –       –               –               –             –
            readiness-drain                 –       –               –               –             –
            readiness-prestop               –       –               –               –             –
            readiness-prestop-drain         –       –               –               –             –
            readiness-no-handler            –       –               –               –             –

            24 of 24 failures have a cause. By the lab's own truth, 1 of 88,024 requests are judged otherwise; of 0 it does not know.
            judged otherwise: request 9: the report says dns; the truth: Ok
        "#]].assert_eq(&render(&document()));
    }
}
