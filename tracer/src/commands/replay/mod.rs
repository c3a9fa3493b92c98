//! `tracer replay`: the verdict of a recorded trace, or of what others have recorded. Needs no privileges.

mod changes;
mod packets;
mod paths;
mod recording;
mod requests;
mod scout;
mod table;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{judging, units};
use crate::cli::Exit;
use crate::files::{Kind, TraceReader};
use crate::pipeline;

/// Options of `tracer replay`
#[derive(Debug, Args)]
pub struct Options {
    /// A trace of tracer; or captures (pcap, pcapng), output of `conntrack`, of `kubectl get … -o json`, logs of
    /// requests and sysctls, or folders of them, packed by gzip or zstd or not
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// A Service's address, where nothing else tells it
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = units::endpoint)]
    service: Vec<SocketAddr>,

    /// How far the cluster's clocks may be from that of the packets
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = units::duration)]
    clock_difference: Duration,

    #[command(flatten)]
    judging: judging::Options,
}

/// Reads what there is and says its verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    if let [path] = options.paths.as_slice()
        && paths::is_pipe(path)
    {
        return replay(path, &options);
    }
    let files = paths::files(&options.paths)?;
    let traces = files.of(Kind::Trace);
    match traces.as_slice() {
        [] => {}
        [trace] if files.known() == 1 => return replay(trace, &options),
        _ => bail!("a trace of tracer is replayed alone: give one of them and nothing else"),
    }
    let (header, timeline) = recording::read(&files, &options)?;
    let settings = options.judging.settings(&header)?;
    options.judging.say(&header, &timeline, &settings)
}

fn replay(trace: &std::path::Path, options: &Options) -> anyhow::Result<Exit> {
    let mut reader = TraceReader::open(trace)?;
    let settings = options.judging.settings(reader.header())?;
    let bar = bar(reader.length());
    let timeline = pipeline::replay(&mut reader, &mut |reader| bar.set_position(reader.position()));
    bar.finish_and_clear();
    options.judging.say(reader.header(), &timeline?, &settings)
}

/// How much of so many bytes has been read: on a terminal, and nothing elsewhere. A pipe tells no length.
fn bar(length: u64) -> ProgressBar {
    if length == 0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  {bytes_per_sec}, {eta} left")
            .expect("the template is a constant");
    ProgressBar::new(length).with_style(style)
}
