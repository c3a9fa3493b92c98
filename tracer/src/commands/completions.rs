//! `tracer completions`: what a shell needs to complete tracer's command lines.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::cli::{self, Exit};

/// Options of `tracer completions`
#[derive(Debug, Args)]
pub struct Options {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    // Into memory first: the generator panics where it can't write, and a broken pipe is no error.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut cli::command(), "tracer", &mut script);
    io::stdout().lock().write_all(&script).context("printing the script")?;
    Ok(Exit::Done)
}
