//! `cargo xtask bench`: speed and memory, measured; never as a test. What is compared runs alternately in one
//! run, on one core, so that a busy machine slows both.

mod capture;
mod contest;
mod replay;
mod run;
mod statistics;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace::Workspace;

/// Options of `cargo xtask bench`
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// `tracer replay` of a generated trace, beside reading it alone
    Replay(replay::Options),
    /// `tracer replay` of a generated capture, beside tshark
    Capture(capture::Options),
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    match &options.what {
        What::Replay(options) => replay::run(workspace, options),
        What::Capture(options) => capture::run(workspace, options),
    }
}
