//! What the user named: files, and the files of folders, each by what is in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::codec::requests::{self, Columns};
use crate::files::{Input, Kind};

/// The files, with what is in each.
#[derive(Debug, Default)]
pub(super) struct Files {
    known: Vec<(PathBuf, Kind)>,
    /// Files of folders that are of no known kind.
    pub(super) passed_over: Vec<PathBuf>,
}

impl Files {
    /// Those of a kind, in the order in which they were named.
    pub(super) fn of(&self, kind: Kind) -> Vec<PathBuf> {
        self.known
            .iter()
            .filter(|(_, known)| *known == kind)
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// How many there are of any known kind.
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }
}

/// Whether it can be read once only: then it can be a trace and nothing else, since of all others the beginning
/// is looked at before they are read.
pub(super) fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Looks into all of them.
///
/// # Errors
/// If a named file is empty or of no known kind, if a folder has nothing known, or if one can't be read.
pub(super) fn files(paths: &[PathBuf], columns: &Columns) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for path in paths {
        if path.is_dir() {
            folder(path, columns, &mut files)?;
            continue;
        }
        let input = Input::open(path)?;
        let kind = kind(&input, columns).ok_or_else(|| input.unknown())?;
        files.known.push((path.clone(), kind));
    }
    Ok(files)
}

/// What is in a file; a log of requests may be one only by what the user says of its columns.
fn kind(input: &Input, columns: &Columns) -> Option<Kind> {
    let is_log = || requests::form_of(input.head(), columns).is_some();
    input.kind().or_else(|| is_log().then_some(Kind::Requests))
}

fn folder(path: &Path, columns: &Columns, files: &mut Files) -> anyhow::Result<()> {
    let reading = || format!("cannot read {}", path.display());
    let mut inside: Vec<PathBuf> = std::fs::read_dir(path)
        .with_context(reading)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(reading)?;
    inside.sort();
    let before = files.known.len();
    // What has no length is not opened: some of the kernel's own files let a reader wait for ever.
    let has_length = |file: &PathBuf| {
        file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0)
    };
    for file in inside.into_iter().filter(has_length) {
        match kind(&Input::open(&file)?, columns) {
            Some(kind) => files.known.push((file, kind)),
            None => files.passed_over.push(file),
        }
    }
    if files.known.len() == before {
        bail!("{} has no file of a kind that can be replayed", path.display());
    }
    Ok(())
}
