//! `cargo xtask setup`: finds or installs what is missing, a line for each step. Removes nothing, and changes
//! nothing outside this project's folder but by `apt-get install --no-remove` or a new rustup toolchain.

mod apt;
mod browsers;
mod compiler;
mod linker;
pub(crate) mod page;
mod tools;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

pub(crate) use compiler::Compiler;

use crate::workspace::Workspace;

/// Options of `cargo xtask setup`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only say what is there and what is missing; exit status 1 if something is
    #[arg(long)]
    check: bool,
}

/// What a BPF build needs.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    /// A rustc with the source of `core`.
    pub(crate) compiler: Compiler,
    /// The folder that holds bpf-linker.
    pub(crate) linker: PathBuf,
}

/// How much of it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// To build.
    Build,
    /// To build, and to run the lab.
    Lab,
    /// To build, and to run the lab and every test.
    Everything,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if options.check {
        return Ok(if check(workspace)? { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    ensure(workspace, Need::Everything, Voice::Full)?;
    page::ensure(Voice::Full);
    Ok(ExitCode::SUCCESS)
}

/// Whether to speak of what is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// A line for each thing.
    Full,
    /// Lines only for what has to be done.
    Deeds,
}

/// Makes sure that everything is there.
pub(crate) fn ensure(workspace: &Workspace, need: Need, voice: Voice) -> Result<Toolchain> {
    let there = |what: &str| {
        if voice == Voice::Full {
            say(&format!("{what}: there"));
        }
    };
    let missing = tools::missing(need);
    if missing.is_empty() {
        there(&tools::names(need).join(", "));
    } else {
        tools::install(&missing)?;
    }
    let folder = workspace.toolchain();
    let (compiler, linker) = (compiler::find(&folder), linker::find(&folder));
    if let (Some(compiler), Some(linker)) = (&compiler, &linker) {
        there(&compiler.name);
        there(&linker::name(linker, workspace.root()));
        return Ok(Toolchain { compiler: compiler.clone(), linker: linker.clone() });
    }

    // One set-up at a time: a second one waits here and then finds what the first has made.
    let _lock = lock(&folder)?;
    remove_unfinished(&folder)?;
    let compiler = match compiler::find(&folder) {
        Some(compiler) => compiler,
        None => compiler::install(&folder)?,
    };
    let linker = match linker::find(&folder) {
        Some(linker) => linker,
        None => linker::install(workspace)?,
    };
    Ok(Toolchain { compiler, linker })
}

fn check(workspace: &Workspace) -> Result<bool> {
    let missing = tools::missing(Need::Everything);
    for tool in tools::names(Need::Everything) {
        let absent = missing.iter().find(|missing| missing.program == tool);
        say(&match absent {
            Some(tool) => format!("{}: missing (package {})", tool.program, tool.package),
            None => format!("{tool}: there"),
        });
    }
    let folder = workspace.toolchain();
    let compiler = compiler::find(&folder);
    say(&match &compiler {
        Some(compiler) => format!("{}: there", compiler.name),
        None => "BPF compiler: missing (a rustup nightly with rust-src, or Debian's rustc-web)"
            .to_owned(),
    });
    let linker = linker::find(&folder);
    say(&match &linker {
        Some(linker) => format!("{}: there", linker::name(linker, workspace.root())),
        None => format!("bpf-linker {}: missing", linker::VERSION),
    });
    say(&match page::find() {
        Some(browser) => format!("{browser}: there"),
        None => "Chromium: missing; the tests that look at pages are left out".to_owned(),
    });
    Ok(missing.is_empty() && compiler.is_some() && linker.is_some())
}

/// Says a step, on standard error: standard output belongs to what is run in the end.
pub(crate) fn say(step: &str) {
    eprintln!("setup: {step}");
}

fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// What is being made has this ending, and gets its name by a rename once it is whole.
const UNFINISHED: &str = "unfinished";

/// A fresh folder for something that will be called `name`.
fn begin(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.{UNFINISHED}"));
    fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    Ok(path)
}

/// Gives a finished folder its name.
fn finish(unfinished: &Path) -> Result<PathBuf> {
    let path = unfinished.with_extension("");
    if path.exists() {
        // `find` did not take it for whole, or nobody would be making it again.
        fs::remove_dir_all(&path).with_context(|| format!("replacing {}", path.display()))?;
    }
    fs::rename(unfinished, &path)
        .with_context(|| format!("renaming {} to {}", unfinished.display(), path.display()))?;
    Ok(path)
}

fn remove_unfinished(folder: &Path) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == UNFINISHED) {
            say(&format!("clearing away {}, left by an interrupted set-up", path.display()));
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_is_cleared_away_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let half = begin(folder.path(), "tool").unwrap();
        fs::write(half.join("part"), "half").unwrap();
        let whole = begin(folder.path(), "other").unwrap();
        fs::write(whole.join("part"), "whole").unwrap();
        let whole = finish(&whole).unwrap();

        remove_unfinished(folder.path()).unwrap();

        assert!(!half.exists());
        assert_eq!(fs::read_to_string(whole.join("part")).unwrap(), "whole");
        assert_eq!(whole, folder.path().join("other"));
    }
}
