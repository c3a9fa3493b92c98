//! `cargo xtask bench capture`: how many packets a second `tracer replay` reads from a capture, beside tshark on the
//! same file.

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

/// What `tracer replay` should do; every packet of the capture has the SYN flag.
const PACKETS_PER_SECOND: Bar = Bar::AtLeast(1e6);
/// The most memory that it should hold, whatever the capture's length.
const PEAK: Bar = Bar::Below(400e6);
/// How much faster than tshark, which only prints fields.
const TIMES_TSHARK: Bar = Bar::AtLeast(30.0);

/// Options of `cargo xtask bench capture`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Replay a generated capture of at least so many packets
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,

    /// Measure each so many times
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// The cores to run on, as taskset takes them
    #[arg(long, default_value = "0,1")]
    cores: String,
}

/// Runs it.
pub(super) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    check_tools()?;
    let mut build = process::host_cargo(workspace.root());
    build.args(["build", "--release", "--package", "tracer", "--bin", "tracer"]);
    process::show(build.args(["--example", "generate_capture"])).context("building tracer")?;
    let release = workspace.target().join("release");
    let folder = workspace.target().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let (capture, packets) = generated(&release, &folder, options.packets)?;
    let mut contenders = vec![Contender {
        name: "tracer replay",
        program: release.join("tracer"),
        arguments: vec!["replay".into(), capture.clone()],
        accepted: &[0, 3],
        costs: Vec::new(),
    }];
    match process::find("tshark") {
        Some(program) => {
            let fields = ["frame.time_epoch", "ip.src", "tcp.srcport", "ip.dst", "tcp.seq_raw"];
            let mut arguments: Vec<PathBuf> = ["-n", "-T", "fields"].map(PathBuf::from).to_vec();
            arguments.extend(fields.iter().flat_map(|field| [PathBuf::from("-e"), field.into()]));
            arguments.extend(["-r".into(), capture.clone()]);
            contenders.push(Contender {
                name: "tshark",
                program,
                arguments,
                accepted: &[0],
                costs: Vec::new(),
            });
        }
        None => eprintln!("left out: tshark: not on this machine"),
    }
    contest::hold(&mut contenders, options.runs, &options.cores, &folder.join("time"))?;
    println!(
        "{packets} packets, {} bytes; each run {} times on the cores {}",
        fs::metadata(&capture)?.len(),
        options.runs,
        options.cores
    );
    let bars = Bars {
        things: packets,
        noun: "packets",
        speed: PACKETS_PER_SECOND,
        peak: PEAK,
        ratio: Some(("tshark", TIMES_TSHARK)),
        // Reading and correlating are on two threads, and somebody waits for both.
        by: |cost| cost.wall,
    };
    print!("{}", contest::table(&contenders, &bars));
    Ok(ExitCode::SUCCESS)
}

/// The capture of that many packets, and how many it has. It is made in moments, so it is made anew.
fn generated(release: &Path, folder: &Path, packets: u64) -> Result<(PathBuf, u64)> {
    let capture = folder.join("generated.pcap");
    let mut command = std::process::Command::new(release.join("examples/generate_capture"));
    command.arg(&capture).args(["--packets", &packets.to_string()]);
    let said = process::read(&mut command).context("generating a capture")?;
    Ok((capture, said.trim().parse().context("how many packets there are")?))
}
