//! `tracer lab --matrix`: every pod setup with both clients, each run more than once, as one experiment.
//!
//! One run of it is a run of `tracer lab` with that setup and that client, and nothing else.

mod cell;
mod document;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::progress::Common;
use super::{Client, ROLLOUT_AFTER};
use crate::cli::{Exit, note};
use crate::lab::{SETUPS, Setup};
use crate::sys::stop::Stop;

use cell::Came;
use document::Document;

/// How long a run of the matrix is without `--duration`: as in the experiment that it repeats.
pub(super) const DURATION: Duration = Duration::from_secs(50);

/// What else sets what the matrix sets itself, or what has no meaning for many runs.
const CONTRADICTING: [&str; 14] = [
    "setup",
    "client",
    "quick",
    "control",
    "prestop",
    "intervene",
    "intervene_after",
    "truth",
    "rollout_start",
    "rollout_end",
    "fail_on",
    "bpf_log",
    "report",
    "tui",
];

/// The options of the matrix itself.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// Run the whole experiment instead: all setups with both clients, 50 s each, and say it in two tables; exit
    /// status 2 if a run failed, 3 if it was interrupted
    #[arg(long, conflicts_with_all = CONTRADICTING)]
    matrix: bool,

    /// With --matrix: how often each of them is run
    #[arg(
        long, value_name = "N", default_value_t = 2, requires = "matrix",
        value_parser = clap::value_parser!(u8).range(1..=20)
    )]
    runs: u8,

    /// With --matrix: how many labs there are at a time [default: by the number of processors]
    #[arg(
        long, value_name = "N", requires = "matrix", value_parser = clap::value_parser!(u8).range(1..=32)
    )]
    parallel: Option<u8>,
}

impl Options {
    pub(super) fn is_asked_for(&self) -> bool {
        self.matrix
    }

    /// How many labs there are at a time, for so many runs in all.
    fn parallel(&self, runs: usize) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        self.parallel.map_or_else(|| usual_parallel(processors), usize::from).min(runs)
    }
}

/// How many labs at a time so many processors carry without changing what is seen: a lab with its client and tracer
/// takes a sixth of one. Two for each, on a machine of two that had other work besides: rollouts took as long as in labs
/// one after the other, and as many requests failed, of the same causes.
fn usual_parallel(processors: usize) -> usize {
    (2 * processors).min(12)
}

/// One run of one setup with one client.
#[derive(Clone, Debug)]
struct Cell {
    client: Client,
    setup: Setup,
    /// Counted from 1.
    run: u8,
    seed: u64,
    trace: Option<PathBuf>,
}

/// Runs all of it and says what came out.
pub(super) fn run(options: &super::Options, stop: &Stop) -> anyhow::Result<Exit> {
    let duration = options.duration();
    anyhow::ensure!(
        duration > ROLLOUT_AFTER,
        "the rollout starts {} s in: --duration {} s would end before it",
        ROLLOUT_AFTER.as_secs(),
        duration.as_secs_f64()
    );
    let cells = cells(options);
    // What can't work for a run is found out before the first begins.
    for cell in &cells {
        of_cell(options, cell).plan(None)?;
    }
    prepare_folder(options, &cells)?;
    let parallel = options.matrix.parallel(cells.len());
    note(format_args!(
        "{} runs of {} s, {parallel} at a time{}",
        cells.len(),
        duration.as_secs_f64(),
        match options.matrix.parallel {
            Some(_) => "",
            None => " (by the number of processors; --parallel says otherwise)",
        }
    ));
    let came = run_all(options, &cells, parallel, duration, stop);
    let document = Document::new(options, parallel, &cells, came, stop.is_requested());
    say(options, &document)?;
    if stop.is_requested() {
        note("interrupted; the labs are taken down, the tables have the runs that were over");
        return Ok(Exit::Inconclusive);
    }
    let failed = document.failed();
    anyhow::ensure!(
        failed.is_empty(),
        "{} of {} runs failed: {}",
        failed.len(),
        cells.len(),
        failed.join("; ")
    );
    Ok(Exit::Done)
}

/// Every run, the first of each setup and client before the second of any: a matrix that is interrupted has whole
/// tables of fewer runs.
fn cells(options: &super::Options) -> Vec<Cell> {
    let base = options.seed.unwrap_or_else(rand::random);
    let mut cells = Vec::new();
    for run in 1..=options.matrix.runs {
        for client in Client::ALL {
            for setup in SETUPS {
                let number = cells.len() as u64;
                let name = format!("{}-{}-{run}.trace", client.name(), setup.name);
                cells.push(Cell {
                    client,
                    setup,
                    run,
                    seed: base.wrapping_add(number),
                    trace: options.record.as_ref().map(|folder| folder.join(name)),
                });
            }
        }
    }
    cells
}

/// The options of `tracer lab` for one run.
fn of_cell(options: &super::Options, cell: &Cell) -> super::Options {
    let mut options = options.clone();
    options.cluster.setup = cell.setup;
    options.client = cell.client;
    options.seed = Some(cell.seed);
    options.record.clone_from(&cell.trace);
    options
}

/// Makes the folder for the traces, and looks whether each of them can be had.
fn prepare_folder(options: &super::Options, cells: &[Cell]) -> anyhow::Result<()> {
    let Some(folder) = &options.record else { return Ok(()) };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    cells.iter().try_for_each(|cell| {
        options.tracing.check(cell.trace.as_deref(), options.judging.existing())
    })
}

/// What became of each run, in the order of the cells; none of those that did not come to their end.
fn run_all(
    options: &super::Options,
    cells: &[Cell],
    parallel: usize,
    duration: Duration,
    stop: &Stop,
) -> Vec<Option<anyhow::Result<Came>>> {
    let progress = Common::new(cells.len(), duration);
    let came = each(cells.len(), parallel, |number| {
        // One after the other, so that no two rollouts go on at the same time for longer than need be: pods are what
        // costs a machine most.
        let turn = if number < parallel { number } else { 0 };
        if !stop.wait(duration.mul_f64(turn as f64 / parallel as f64)) {
            return None;
        }
        let options = of_cell(options, &cells[number]);
        // A run that fails asks everyone to stop who belongs to it, and nobody else.
        let own = stop.part();
        let result = options.plan(None).and_then(|plan| {
            let run = options.once(&plan, &own, &progress.part(number, duration))?;
            Came::new(run)
        });
        (!stop.is_requested()).then_some(result)
    });
    progress.end();
    came
}

/// Does the work of each number below `count`, so many at a time, and gives what came of it in the order of the
/// numbers.
fn each<T: Send>(count: usize, parallel: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count);
    let done = thread::scope(|scope| {
        let mut workers = Vec::new();
        for _ in 0..parallel {
            workers.push(scope.spawn(|| {
                let mut done = Vec::new();
                while let Some(number) = take() {
                    done.push((number, work(number)));
                }
                done
            }));
        }
        let done = workers.into_iter().map(|worker| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect::<BTreeMap<usize, T>>()
    });
    done.into_values().collect()
}

/// Prints the tables; and the document where the report would be, if that is JSON.
fn say(options: &super::Options, document: &Document) -> anyhow::Result<()> {
    let tables = tables::render(document);
    if options.judging.is_text() {
        return io::stdout().lock().write_all(tables.as_bytes()).context("printing the tables");
    }
    // Where nobody hears them, the document has all of it.
    let _ = io::stderr().lock().write_all(tables.as_bytes());
    let mut out = io::stdout().lock();
    out.write_all(document.render().as_bytes())
        .and_then(|()| out.flush())
        .context("printing the document")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use expect_test::expect;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: super::super::Options,
    }

    fn parse(line: &str) -> Result<super::super::Options, String> {
        let words = std::iter::once("lab").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.options)
    }

    #[test]
    fn every_setup_meets_every_client_in_each_run_with_a_seed_and_a_trace_of_its_own() {
        let options = parse("--matrix --runs 2 --seed 7 --record out").expect("it is possible");
        let cells = cells(&options);
        assert_eq!(cells.len(), 2 * 2 * SETUPS.len());
        let said: Vec<String> = [&cells[0], &cells[7], &cells[23]]
            .map(|cell| {
                let of = of_cell(&options, cell);
                let trace = of.record.expect("a trace is wanted");
                format!("run {}: {} {}", cell.run, of.seed.expect("it is set"), trace.display())
            })
            .to_vec();
        expect![[r#"
            run 1: 7 out/fresh-naive-1.trace
            run 1: 14 out/keep-alive-readiness-1.trace
            run 2: 30 out/keep-alive-readiness-no-handler-2.trace"#]]
        .assert_eq(&said.join("\n"));
        let plan = of_cell(&options, &cells[7]).plan(None).expect("it is possible");
        assert_eq!((plan.duration, plan.lab.keep_alive), (DURATION, true));
        assert_eq!(plan.lab.setup.name, "readiness");
    }

    #[test]
    fn so_many_run_at_a_time_and_what_came_of_them_keeps_its_order() {
        let (arrived, arrivals) = (AtomicUsize::new(0), std::sync::Barrier::new(3));
        let numbers = each(6, 3, |number| {
            // Nobody goes on before three have come.
            arrivals.wait();
            assert!(arrived.fetch_add(1, Ordering::Relaxed) < 6);
            number
        });
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_the_matrix_sets_itself_contradicts_it() {
        for option in [
            "--setup naive",
            "--client fresh",
            "--quick",
            "--control no-rollout",
            "--prestop 2s",
            "--intervene flush",
            "--truth file",
            "--rollout-start +5",
            "--rollout-end +9",
            "--fail-on supported",
            "--bpf-log",
        ] {
            let error = parse(&format!("--matrix {option}")).expect_err("it is refused");
            assert!(error.contains("--matrix' cannot be used with"), "{option}: {error}");
        }
        for option in ["--runs 2", "--parallel 2"] {
            assert!(parse(option).is_err(), "{option} without --matrix");
        }
        for value in ["--runs 0", "--parallel 0", "--parallel 33"] {
            assert!(parse(&format!("--matrix {value}")).is_err(), "{value}");
        }
    }

    #[test]
    fn what_the_matrix_leaves_open_can_be_set() {
        let options =
            parse("--matrix --mode nftables --timeout 10s --rules-lag 2s --workers 4 --duration 9")
                .expect("it is possible");
        let plan = of_cell(&options, &cells(&options)[0]).plan(None).expect("it is possible");
        assert_eq!((plan.workers, plan.timeout), (4, Duration::from_secs(10)));
        assert_eq!(plan.duration, Duration::from_secs(9));
    }

    #[test]
    fn a_run_that_would_end_before_its_rollout_is_refused() {
        let options = parse("--matrix --duration 5s").expect("it is a duration");
        let error = run(&options, &Stop::default()).expect_err("it is too short");
        assert_eq!(
            error.to_string(),
            "the rollout starts 5 s in: --duration 5 s would end before it"
        );
    }
}
