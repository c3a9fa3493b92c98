//! `tracer lab`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer lab`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("lab is not built yet")
}
