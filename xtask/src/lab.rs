//! `cargo xtask lab`: builds, becomes root, runs `tracer lab` and passes its exit status on.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::build;
use crate::process::Privilege;
use crate::setup::{self, Need, Voice};
use crate::workspace::Workspace;

/// Options of `cargo xtask lab`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Options {
    /// What to pass on to `tracer lab`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let toolchain = setup::ensure(workspace, Need::Lab, Voice::Deeds)?;
    let object = build::bpf_object(workspace, &toolchain)?;
    let tracer = build::release(workspace, &object)?;
    let mut command = Privilege::of_this_account()?.command(&tracer)?;
    // Become it rather than wait for it: Ctrl-C then reaches the lab alone, and whoever waits for us waits
    // until it has put everything back.
    let error = command.arg("lab").args(&options.arguments).exec();
    Err(error).with_context(|| format!("starting {}", tracer.display()))
}
