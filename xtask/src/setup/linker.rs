//! bpf-linker, which links BPF objects with the LLVM of the compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{begin, finish, say};
use crate::process;
use crate::workspace::Workspace;

/// The version that is installed.
pub(crate) const VERSION: &str = "0.10.3";

/// The folder that holds a fit one, if any: ours, or one on PATH.
pub(crate) fn find(folder: &Path) -> Option<PathBuf> {
    let own = folder.join(our_name()).join("bin");
    if is_fit(&own.join("bpf-linker")) {
        return Some(own);
    }
    let installed = process::find("bpf-linker").filter(|path| is_fit(path))?;
    installed.parent().map(Path::to_owned)
}

/// What to call it.
pub(crate) fn name(folder: &Path, root: &Path) -> String {
    format!("bpf-linker in {}", folder.strip_prefix(root).unwrap_or(folder).display())
}

/// Builds it, into a folder of this project.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    say(&format!("cargo install bpf-linker@{VERSION} (a minute or two)"));
    let unfinished = begin(&workspace.toolchain(), &our_name())?;
    let objects = unfinished.join("objects");
    let mut command = process::cargo(workspace.root());
    command
        .args(["install", "--quiet", "--locked", "--root"])
        .arg(&unfinished)
        .arg(format!("bpf-linker@{VERSION}"))
        .env("CARGO_TARGET_DIR", &objects);
    process::read(&mut command).context(
        "building bpf-linker (without network, install it by hand: cargo install bpf-linker@0.10.3)",
    )?;
    fs::remove_dir_all(&objects).with_context(|| format!("removing {}", objects.display()))?;
    Ok(finish(&unfinished)?.join("bin"))
}

fn our_name() -> String {
    format!("bpf-linker-{VERSION}")
}

fn is_fit(path: &Path) -> bool {
    path.exists()
        && process::read(Command::new(path).arg("--version"))
            .is_ok_and(|text| is_fit_version(&text))
}

/// The same minor version, not older: 0.x versions differ from each other where x does.
fn is_fit_version(text: &str) -> bool {
    let numbers = |version: &str| -> Vec<u32> {
        version.trim().split('.').map_while(|number| number.parse().ok()).collect()
    };
    let (wanted, got) = (numbers(VERSION), numbers(text.trim_start_matches("bpf-linker")));
    got.len() == 3 && got[..2] == wanted[..2] && got[2] >= wanted[2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_minor_version_is_not_fit() {
        assert!(is_fit_version("bpf-linker 0.10.3\n"));
        assert!(is_fit_version("bpf-linker 0.10.4\n"));
        assert!(!is_fit_version("bpf-linker 0.10.2\n"));
        assert!(!is_fit_version("bpf-linker 0.11.0\n"));
        assert!(!is_fit_version("bpf-linker\n"));
    }
}
