//! `tracer doctor`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer doctor`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("doctor is not built yet")
}
