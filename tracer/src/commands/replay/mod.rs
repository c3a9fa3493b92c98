//! `tracer replay`: the verdict of a recorded trace, or of what others have recorded. Needs no privileges.

mod ahead;
mod changes;
mod clocks;
mod columns;
mod listing;
mod packets;
mod paths;
mod recording;
mod requests;
mod scout;
mod table;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{judging, units};
use crate::cli::Exit;
use crate::codec::trace::HeaderError;
use crate::correlate::Timeline;
use crate::files::{FileError, Kind, TraceReader};
use crate::model::{TraceHeader, WallNs};
use crate::pipeline;
use crate::verdict;

/// Options of `tracer replay`
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    sources: Sources,

    #[command(flatten)]
    judging: judging::Options,
}

/// What is read, and how.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Sources {
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

    /// How far the zone of conntrack's times is ahead of UTC, where they name none (`-o xml`): +01:00, -05:30
    #[arg(long, value_name = "OFFSET", value_parser = units::zone, allow_hyphen_values = true)]
    time_zone: Option<i32>,

    /// When the output of `conntrack -L` was made, as Unix seconds [default: when its file was written]
    #[arg(long, value_name = "TIME", value_parser = units::unix)]
    listed_at: Option<WallNs>,

    #[command(flatten)]
    log: columns::Options,
}

/// Reads what there is and says its verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    let (header, settings, timeline) =
        options.sources.read(|header| options.judging.settings(header))?;
    options.judging.say(&header, &timeline, &settings)
}

impl Sources {
    /// Reads what there is, to the timeline and how to judge it, which `settings` says as soon as there is a
    /// header.
    ///
    /// # Errors
    /// If a file can't be had or is none that is known, or if `settings` fails.
    pub fn read(
        &self,
        settings: impl Fn(&TraceHeader) -> anyhow::Result<verdict::Settings>,
    ) -> anyhow::Result<(TraceHeader, verdict::Settings, Timeline)> {
        if let [path] = self.paths.as_slice()
            && paths::is_pipe(path)
        {
            return replay(path, settings).map_err(|error| match error.downcast_ref::<FileError>() {
                Some(FileError::Header { why: HeaderError::NotATrace, .. }) => error.context(
                    "through a pipe only a trace of tracer can be replayed; save the rest to a file",
                ),
                _ => error,
            });
        }
        if let Some(pipe) = self.paths.iter().find(|path| paths::is_pipe(path)) {
            bail!(
                "{} is a pipe: files are looked at before they are read, so save it to a file first",
                pipe.display()
            );
        }
        let files = paths::files(&self.paths, &self.log.columns()?)?;
        self.log.check(&files.of(Kind::Requests))?;
        let traces = files.of(Kind::Trace);
        match traces.as_slice() {
            [] => {}
            [trace] if files.known() == 1 => return replay(trace, settings),
            _ => bail!("a trace of tracer is replayed alone: give one of them and nothing else"),
        }
        let (header, timeline) = recording::read(&files, self)?;
        let settings = settings(&header)?;
        Ok((header, settings, timeline))
    }
}

fn replay(
    trace: &Path,
    settings: impl Fn(&TraceHeader) -> anyhow::Result<verdict::Settings>,
) -> anyhow::Result<(TraceHeader, verdict::Settings, Timeline)> {
    let mut reader = TraceReader::open(trace)?;
    let header = reader.header().clone();
    let settings = settings(&header)?;
    let bar = bar(reader.length());
    let timeline = pipeline::replay(&mut reader, &mut |reader| bar.set_position(reader.position()));
    bar.finish_and_clear();
    Ok((header, settings, timeline?))
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
