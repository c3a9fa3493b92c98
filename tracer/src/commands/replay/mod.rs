//! `tracer replay`: the verdict of a recorded trace. Needs no privileges.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::judging;
use crate::cli::Exit;
use crate::files::TraceReader;
use crate::pipeline;

/// Options of `tracer replay`
#[derive(Debug, Args)]
pub struct Options {
    /// A trace that `tracer lab --record` or `tracer record` made
    trace: PathBuf,

    #[command(flatten)]
    judging: judging::Options,
}

/// Reads the trace and says its verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    let mut reader = TraceReader::open(&options.trace)?;
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
