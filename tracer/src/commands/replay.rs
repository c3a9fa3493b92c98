//! `tracer replay`: the verdict of a recorded trace. Needs no privileges.

use std::path::PathBuf;

use clap::Args;

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
    let timeline = pipeline::replay(&mut reader)?;
    options.judging.say(reader.header(), &timeline, &settings)
}
