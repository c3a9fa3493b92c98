//! The matrix as plain values, and as JSON: docs/matrix.schema.json describes every field.

use std::time::Duration;

use nix::sys::utsname::uname;
use serde::{Serialize, Serializer};

use super::cell::Came;
use super::{Cell, ROLLOUT_AFTER};
use crate::commands::lab::Client;
use crate::commands::tracing::command_line;
use crate::lab::SETUPS;

/// The version of this layout.
const SCHEMA: u32 = 1;

/// All of a matrix. Its serialisation is the JSON document, schema 1; durations are seconds.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    /// The version of this layout.
    schema: u32,
    /// What made it.
    origin: OriginRow,
    /// How often each setup was to be run with each client.
    pub(super) runs: u8,
    /// How many labs there were at a time.
    pub(super) parallel: usize,
    /// How long the load lasted in each.
    #[serde(serialize_with = "seconds")]
    pub(super) duration: Duration,
    /// When the rollout started, counted from the load's beginning.
    #[serde(serialize_with = "seconds")]
    pub(super) rollout_after: Duration,
    /// How many requests the client had under way at once.
    pub(super) workers: u32,
    /// How long a request might take.
    #[serde(serialize_with = "seconds")]
    pub(super) timeout: Duration,
    /// Whether somebody ended it early.
    pub(super) interrupted: bool,
    /// The two tables.
    pub(super) tables: Vec<Table>,
}

/// Where it comes from.
#[derive(Debug, Serialize)]
struct OriginRow {
    /// tracer's version.
    tracer: String,
    /// The command.
    command: String,
    /// The kernel.
    kernel: Option<String>,
    /// How many processors this process could use.
    processors: Option<usize>,
}

/// What came out with one client.
#[derive(Debug, Serialize)]
pub(super) struct Table {
    /// The client.
    pub(super) client: &'static str,
    /// A row for each setup.
    pub(super) setups: Vec<SetupRow>,
}

/// What came out of one setup.
#[derive(Debug, Serialize)]
pub(super) struct SetupRow {
    /// The setup.
    pub(super) setup: &'static str,
    /// Each run of it.
    pub(super) runs: Vec<RunRow>,
}

/// One run.
#[derive(Debug, Serialize)]
pub(super) struct RunRow {
    /// Which, counted from 1.
    pub(super) run: u8,
    /// The seed of its random choices.
    seed: u64,
    /// Where its trace is.
    trace: Option<String>,
    /// Why it failed.
    pub(super) error: Option<String>,
    /// What it came to; none if it failed or did not come to its end.
    pub(super) result: Option<Came>,
}

impl Document {
    /// Puts together what came of each cell.
    pub(super) fn new(
        options: &super::super::Options,
        parallel: usize,
        cells: &[Cell],
        came: Vec<Option<anyhow::Result<Came>>>,
        interrupted: bool,
    ) -> Document {
        let mut tables: Vec<Table> = Client::ALL
            .into_iter()
            .map(|client| Table {
                client: client.name(),
                setups: SETUPS
                    .into_iter()
                    .map(|setup| SetupRow { setup: setup.name, runs: Vec::new() })
                    .collect(),
            })
            .collect();
        for (cell, came) in cells.iter().zip(came) {
            let (result, error) = match came {
                None => (None, None),
                Some(Ok(came)) => (Some(came), None),
                Some(Err(error)) => (None, Some(format!("{error:#}"))),
            };
            let row = RunRow {
                run: cell.run,
                seed: cell.seed,
                trace: cell.trace.as_ref().map(|path| path.display().to_string()),
                error,
                result,
            };
            let of_client = tables.iter_mut().filter(|table| table.client == cell.client.name());
            let mut of_setup = of_client
                .flat_map(|table| &mut table.setups)
                .filter(|setup| setup.setup == cell.setup.name);
            of_setup.next().expect("every client and setup has its row").runs.push(row);
        }
        Document {
            schema: SCHEMA,
            origin: OriginRow {
                tracer: env!("CARGO_PKG_VERSION").to_owned(),
                command: command_line(),
                kernel: uname().ok().map(|machine| machine.release().to_string_lossy().into()),
                processors: std::thread::available_parallelism().ok().map(usize::from),
            },
            runs: options.matrix.runs,
            parallel,
            duration: options.duration(),
            rollout_after: ROLLOUT_AFTER,
            workers: options.workers,
            timeout: options.timeout,
            interrupted,
            tables,
        }
    }

    /// Pretty JSON with a newline at its end.
    pub(super) fn render(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("a document has only plain values and lists of them");
        json.push('\n');
        json
    }

    /// The runs that failed, each with why.
    pub(super) fn failed(&self) -> Vec<String> {
        let mut failed = Vec::new();
        for table in &self.tables {
            for SetupRow { setup, runs } in &table.setups {
                for row in runs {
                    if let Some(error) = &row.error {
                        failed.push(format!("{setup} {}, run {}: {error}", table.client, row.run));
                    }
                }
            }
        }
        failed
    }
}

fn seconds<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cell::{CauseRow, Compared, Failed};
    use super::*;
    use crate::model::{RequestId, Symptom};
    use crate::verdict::{Cause, VerdictOutcome};

    use crate::report::json::schema::Schema;

    fn came(failed: u64) -> Came {
        let start = 9.5;
        let failure = Failed {
            request: RequestId(7),
            start,
            total: 3.0,
            symptom: Symptom::ConnectTimeout,
            cause: Cause::StaleEntryReuse,
            pod: Some("web-1-1".to_owned()),
        };
        let row = CauseRow {
            symptom: Symptom::ConnectTimeout,
            cause: Cause::StaleEntryReuse,
            count: failed,
            after_rollout: failed,
            first: start,
            last: start,
        };
        Came {
            requests: 8_000 + failed,
            failed,
            failed_after_rollout: failed,
            late: 0,
            slowed: 0,
            rollout_complete: Some(9.0),
            last_old_pod_gone: (failed == 0).then_some(14.13),
            outcome: VerdictOutcome::Inconclusive,
            causes: (failed > 0).then_some(row).into_iter().collect(),
            failures: vec![failure; failed as usize],
            truth: Compared {
                requests: 8_000 + failed,
                undetermined: 0,
                disagreements: match failed {
                    9 => vec!["request 9: the report says dns; the truth: Ok".to_owned()],
                    _ => Vec::new(),
                },
            },
        }
    }

    /// Two runs, of which `naive` failed once with `fresh`, and all but it are over for that client alone.
    pub(in crate::commands::lab::matrix) fn document() -> Document {
        let row = |run, result: Option<Came>, error: Option<&str>| RunRow {
            run,
            seed: u64::from(run),
            trace: (run == 1).then(|| "out/some.trace".to_owned()),
            error: error.map(str::to_owned),
            result,
        };
        let tables = Client::ALL.map(|client| Table {
            client: client.name(),
            setups: SETUPS
                .into_iter()
                .map(|setup| SetupRow {
                    setup: setup.name,
                    runs: match (client, setup.name) {
                        (Client::KeepAlive, _) => vec![row(1, None, None), row(2, None, None)],
                        (_, "naive") => {
                            vec![
                                row(1, Some(came(3)), None),
                                row(2, None, Some("pod web-1-1 is late")),
                            ]
                        }
                        (_, "readiness") => {
                            vec![row(1, Some(came(12)), None), row(2, Some(came(9)), None)]
                        }
                        _ => vec![row(1, Some(came(0)), None), row(2, Some(came(0)), None)],
                    },
                })
                .collect(),
        });
        Document {
            schema: SCHEMA,
            origin: OriginRow {
                tracer: "0.1.0".to_owned(),
                command: "tracer lab --matrix".to_owned(),
                kernel: None,
                processors: Some(2),
            },
            runs: 2,
            parallel: 2,
            duration: Duration::from_secs(50),
            rollout_after: ROLLOUT_AFTER,
            workers: 10,
            timeout: Duration::from_secs(3),
            interrupted: true,
            tables: tables.into(),
        }
    }

    #[test]
    fn the_document_keeps_to_its_schema() {
        let schema = Schema::new(include_str!("../../../../../docs/matrix.schema.json"));
        schema.check(&document().render()).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let unknown = document().render().replace("\"parallel\"", "\"in_parallel\"");
        assert!(schema.check(&unknown).is_err(), "an unknown field is found out");
        let unknown = document().render().replace("\"after_rollout\"", "\"after\"");
        assert!(schema.check(&unknown).is_err(), "an unknown field of a row is found out");
    }

    #[test]
    fn a_run_that_failed_is_named_and_one_that_was_not_over_is_not() {
        assert_eq!(document().failed(), ["naive fresh, run 2: pod web-1-1 is late"]);
    }
}
