//! `cargo xtask bench replay`: how many events a second `tracer replay` reads from a trace, and in how much
//! memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::contest::{self, Bars, Contender};
use super::run::check_tools;
use super::statistics::Bar;
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

/// Runs it.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    check_tools()?;
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
    contest::hold(&mut contenders, options.runs, &options.core.to_string(), &folder.join("time"))?;
    println!(
        "{events} events, {} bytes; each run {} times on core {}",
        fs::metadata(&trace)?.len(),
        options.runs,
        options.core
    );
    let bars = Bars {
        things: events,
        noun: "events",
        speed: EVENTS_PER_SECOND,
        peak: PEAK,
        ratio: None,
        // What else runs on the core is not ours.
        by: |cost| cost.cpu,
    };
    print!("{}", contest::table(&contenders, &bars));
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
