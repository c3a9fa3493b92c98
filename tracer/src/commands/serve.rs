//! `tracer serve`

use clap::Args;

use crate::cli::Exit;

/// Options of `tracer serve`
#[derive(Debug, Args)]
pub struct Options {}

/// Runs it.
pub fn run(_options: Options) -> anyhow::Result<Exit> {
    anyhow::bail!("serve is not built yet")
}
