//! `tracer replay`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer replay`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("replay is not built yet")
}
