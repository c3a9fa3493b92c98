//! What the lab and its client know of a run, and the file that it goes to.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::lab::truth::{ClientRow, Truth};

/// What the lab and its client know of the run, by other means than the tracer's.
#[derive(Serialize)]
pub(super) struct WholeTruth {
    pub(super) lab: Truth,
    pub(super) requests: Vec<ClientRow>,
}

/// Where the truth goes.
pub(super) struct TruthFile {
    path: PathBuf,
    file: File,
}

impl TruthFile {
    /// Opens it; what is in it stays until there is something to write.
    pub(super) fn create(path: &Path) -> anyhow::Result<TruthFile> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(TruthFile { path: path.to_owned(), file })
    }

    pub(super) fn write(self, truth: &WholeTruth) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            let mut file = BufWriter::new(&self.file);
            serde_json::to_writer(&mut file, truth)?;
            Ok(file.flush()?)
        };
        write().with_context(|| format!("writing the truth to {}", self.path.display()))
    }
}
