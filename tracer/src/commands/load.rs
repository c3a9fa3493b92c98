//! `tracer load`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer load`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("load is not built yet")
}
