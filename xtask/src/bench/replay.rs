//! `cargo xtask bench replay`: how many events a second `tracer replay` reads from a trace, and in how much
//! memory.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::run::{self, Cost};
use super::statistics::{Bar, Spread};
use crate::process;
use crate::workspace::Workspace;

/// What `tracer replay` should do on one core.
const EVENTS_PER_SECOND: Bar = Bar::AtLeast(3e6);
/// The most memory that it should hold, whatever the trace's length.
const PEAK: Bar = Bar::Below(200e6);

/// Options of `cargo xtask bench replay`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Replay a generated trace of at least so many events
    #[arg(long, default_value_t = 10_000_000)]
    events: u64,

    /// Measure each so many times
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// The core to run on
    #[arg(long, default_value_t = 0)]
    core: u32,
}

/// One thing that is measured. Another kind of input, or a rival, is another one of these.
struct Contender {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<PathBuf>,
    /// Exit statuses of a run that did its work.
    accepted: &'static [i32],
    costs: Vec<Cost>,
}

/// Runs it.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    run::check_tools()?;
    build(workspace)?;
    let release = workspace.target().join("release");
    let folder = workspace.target().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let (trace, events) = generated(&release, &folder, options.events)?;

    let mut contenders = [
        Contender {
            name: "tracer replay",
            program: release.join("tracer"),
            arguments: vec!["replay".into(), trace.clone()],
            // A verdict, or none: both have read it all.
            accepted: &[0, 3],
            costs: Vec::new(),
        },
        Contender {
            name: "reading alone",
            program: release.join("examples/decode"),
            arguments: vec![trace.clone()],
            accepted: &[0],
            costs: Vec::new(),
        },
    ];
    let scratch = folder.join("time");
    // Alternately, so that what else the machine does falls on all alike; the first round only warms up.
    for round in 0..=options.runs {
        for contender in &mut contenders {
            let arguments: Vec<&OsStr> =
                contender.arguments.iter().map(|argument| argument.as_os_str()).collect();
            let program = &contender.program;
            let cost =
                run::measure(options.core, &scratch, program, &arguments, contender.accepted)?;
            if round > 0 {
                eprintln!(
                    "run {round} of {}: {}: {:.2} s",
                    options.runs, contender.name, cost.wall
                );
                contender.costs.push(cost);
            }
        }
    }
    println!(
        "{events} events, {} bytes; each run {} times on core {}",
        fs::metadata(&trace)?.len(),
        options.runs,
        options.core
    );
    print!("{}", table(&contenders, events));
    Ok(ExitCode::SUCCESS)
}

fn build(workspace: &Workspace) -> Result<()> {
    let mut command = process::host_cargo(workspace.root());
    command.args(["build", "--release", "--package", "tracer", "--bin", "tracer"]);
    command.args(["--example", "generate", "--example", "decode"]);
    process::show(&mut command).context("building tracer")
}

/// The trace of that many events, made if it is not there, and how many events it has.
fn generated(release: &Path, folder: &Path, events: u64) -> Result<(PathBuf, u64)> {
    let generator = release.join("examples/generate");
    let trace = folder.join(format!("{events}.trace"));
    let truth = trace.with_extension("json");
    // Kept from one run to the next, but not for another generator.
    let made = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    if made(&truth).is_none() || made(&trace) < made(&generator) {
        eprintln!("generating {events} events");
        let part = folder.join("part.trace");
        let mut command = std::process::Command::new(&generator);
        let said = process::read(command.arg(&part).args(["--events", &events.to_string()]))?;
        fs::rename(&part, &trace).with_context(|| format!("naming {}", trace.display()))?;
        fs::write(&truth, said).with_context(|| format!("writing {}", truth.display()))?;
    }
    let said =
        fs::read_to_string(&truth).with_context(|| format!("reading {}", truth.display()))?;
    let said: serde_json::Value = serde_json::from_str(&said).context("what was generated")?;
    let events = said["events"].as_u64().context("what was generated names no events")?;
    Ok((trace, events))
}

/// Medians with least and greatest. The bar is held against the time on the processor: what else runs on the
/// core is not ours.
fn table(contenders: &[Contender], events: u64) -> String {
    let column = |contender: &Contender, of: fn(&Cost) -> f64| {
        Spread::of(&contender.costs.iter().map(of).collect::<Vec<f64>>())
    };
    let mut lines = String::new();
    let mut line = |name: &str, what: &str, spread: Spread, scale: f64, bar: Option<Bar>| {
        let judged = bar.map_or(String::new(), |bar| spread.against(bar).to_string());
        let Spread { median, low, high } = spread;
        let [median, low, high] = [median, low, high].map(|value| value / scale);
        let line = format!("{name:<14} {what:<28} {median:>8.2} ({low:.2} to {high:.2})  {judged}");
        lines.push_str(line.trim_end());
        lines.push('\n');
    };
    for (index, contender) in contenders.iter().enumerate() {
        let is_ours = index == 0;
        let speed = |spread: Spread| Spread {
            median: events as f64 / spread.median,
            low: events as f64 / spread.high,
            high: events as f64 / spread.low,
        };
        if let Some(wall) = column(contender, |cost| cost.wall) {
            line(contender.name, "million events/s", speed(wall), 1e6, None);
        }
        if let Some(cpu) = column(contender, |cost| cost.cpu) {
            let bar = is_ours.then_some(EVENTS_PER_SECOND);
            line(contender.name, "million events/s of CPU time", speed(cpu), 1e6, bar);
        }
        if let Some(peak) = column(contender, |cost| cost.peak) {
            line(contender.name, "peak memory, MB", peak, 1e6, is_ours.then_some(PEAK));
        }
    }
    let ours = &contenders[0];
    for rival in &contenders[1..] {
        // Runs next to each other are compared, then the ratios.
        let pairs = ours.costs.iter().zip(&rival.costs);
        let ratios: Vec<f64> = pairs.map(|(ours, rival)| ours.cpu / rival.cpu).collect();
        if let Some(ratio) = Spread::of(&ratios) {
            line(ours.name, &format!("times {}, CPU time", rival.name), ratio, 1.0, None);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_table_says_what_was_reached_and_what_is_undecided() {
        let contender = |name, costs: &[(f64, f64, f64)]| Contender {
            name,
            program: PathBuf::new(),
            arguments: Vec::new(),
            accepted: &[0],
            costs: costs.iter().map(|&(wall, cpu, peak)| Cost { wall, cpu, peak }).collect(),
        };
        let contenders = [
            contender("tracer replay", &[(4.0, 3.0, 5e7), (5.0, 4.0, 6e7), (4.0, 3.2, 5e7)]),
            contender("reading alone", &[(2.0, 1.5, 1e7), (2.0, 2.0, 1e7), (2.0, 1.6, 1e7)]),
        ];
        expect![[r#"
            tracer replay  million events/s                 2.50 (2.00 to 2.50)
            tracer replay  million events/s of CPU time     3.12 (2.50 to 3.33)  undecided
            tracer replay  peak memory, MB                 50.00 (50.00 to 60.00)  reached
            reading alone  million events/s                 5.00 (5.00 to 5.00)
            reading alone  million events/s of CPU time     6.25 (5.00 to 6.67)
            reading alone  peak memory, MB                 10.00 (10.00 to 10.00)
            tracer replay  times reading alone, CPU time     2.00 (2.00 to 2.00)
        "#]]
        .assert_eq(&table(&contenders, 10_000_000));
    }
}
