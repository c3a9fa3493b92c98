//! `tracer man`: the manual, a page for tracer and one for each subcommand.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use crate::cli::{self, Exit};

/// Options of `tracer man`
#[derive(Debug, Args)]
pub struct Options {
    /// The folder to write the pages to, such as /usr/local/share/man/man1; older ones of the same names are replaced
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes the pages.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    let folder = &options.folder;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    clap_mangen::generate_to(cli::command(), folder)
        .with_context(|| format!("writing the pages to {}", folder.display()))?;
    Ok(Exit::Done)
}
