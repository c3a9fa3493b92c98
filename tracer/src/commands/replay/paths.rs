//! What the user named: files, and the files of folders, each by what is in it.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

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

/// Looks into all of them.
///
/// # Errors
/// If a named file is empty or of no known kind, if a folder has nothing known, or if one can't be read.
pub(super) fn files(paths: &[PathBuf]) -> anyhow::Result<Files> {
    let mut files = Files::default();
    for path in paths {
        // One file alone can be a pipe, which can be opened once; a trace's header is read by itself then.
        if path.is_dir() {
            folder(path, &mut files)?;
            continue;
        }
        let input = Input::open(path)?;
        let kind = input.kind().ok_or_else(|| input.unknown())?;
        files.known.push((path.clone(), kind));
    }
    Ok(files)
}

fn folder(path: &Path, files: &mut Files) -> anyhow::Result<()> {
    let reading = || format!("cannot read {}", path.display());
    let mut inside: Vec<PathBuf> = std::fs::read_dir(path)
        .with_context(reading)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(reading)?;
    inside.sort();
    let before = files.known.len();
    for file in inside.into_iter().filter(|file| file.is_file()) {
        match Input::open(&file)?.kind() {
            Some(kind) => files.known.push((file, kind)),
            None => files.passed_over.push(file),
        }
    }
    if files.known.len() == before {
        bail!("{} has no file of a kind that can be replayed", path.display());
    }
    Ok(())
}
