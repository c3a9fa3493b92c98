//! `tracer record`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer record`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("record is not built yet")
}
