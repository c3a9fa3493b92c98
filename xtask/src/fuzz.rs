//! `cargo xtask fuzz`: each target of fuzz/ for a while, with libFuzzer.
//!
//! Coverage comes from LLVM's own passes, which a stable rustc can be asked for, so that this needs no nightly and
//! no cargo-fuzz; `cargo fuzz run TARGET` works as well, for whoever has both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::process;
use crate::workspace::Workspace;

/// What libFuzzer needs to see (clang.llvm.org/docs/SanitizerCoverage.html).
const COVERAGE: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// The longest input, in bytes: longer ones find little and slow all down.
const LONGEST: u32 = 16_384;

/// The memory that one run may take, in MiB: a parser that takes more for so little input is a finding.
const MEMORY: u32 = 1_024;

/// Options of `cargo xtask fuzz`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Which target [default: each of them, one after the other]
    target: Option<String>,

    /// How long each is tried
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    seconds: u32,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let folder = workspace.root().join("fuzz");
    let all = targets(&folder)?;
    let wanted = match &options.target {
        None => all,
        Some(name) if all.contains(name) => vec![name.clone()],
        Some(name) => bail!("no target is called {name}; there are: {}", all.join(", ")),
    };
    if process::find("c++").is_none() {
        bail!("libFuzzer is C++: install a compiler (apt-get install g++)");
    }
    let target_dir = workspace.target().join("fuzz");
    let triple = host(workspace)?;
    let mut build = process::cargo(&folder);
    build
        .args(["build", "--release", "--locked", "--bins", "--target", &triple, "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\u{1f}"));
    process::show(&mut build).context("building the targets")?;
    for name in &wanted {
        let program = target_dir.join(&triple).join("release").join(name);
        fuzz(&program, &folder, &target_dir, name, options.seconds)?;
    }
    println!("fuzz: {} held for {} s each", wanted.join(", "), options.seconds);
    Ok(ExitCode::SUCCESS)
}

/// Runs one target. What it finds worth keeping goes into a corpus of this machine's own, which lies in target/.
fn fuzz(program: &Path, folder: &Path, target_dir: &Path, name: &str, seconds: u32) -> Result<()> {
    let grown = target_dir.join("corpus").join(name);
    let findings = target_dir.join("findings").join(name);
    for folder in [&grown, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    println!("\nfuzz: {name} for {seconds} s");
    let mut command = std::process::Command::new(program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .args(["-timeout=10", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg(&grown)
        .arg(folder.join("corpus").join(name))
        .current_dir(target_dir);
    process::show(&mut command).with_context(|| {
        format!(
            "{name} does not hold: what it was given is in {}; once mended, copy it to fuzz/corpus/{name}",
            findings.display()
        )
    })
}

/// The names of the targets: their files.
fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let reading = || format!("reading {}", folder.display());
    let mut names = Vec::new();
    for file in fs::read_dir(&folder).with_context(reading)? {
        let path: PathBuf = file.with_context(reading)?.path();
        if path.extension().is_some_and(|ending| ending == "rs") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{} has no target", folder.display());
    Ok(names)
}

/// The machine that rustc builds for by itself. It is named, so that the flags are not for build scripts.
fn host(workspace: &Workspace) -> Result<String> {
    let mut rustc = std::process::Command::new("rustc");
    let said = process::read(rustc.arg("-vV").current_dir(workspace.root()))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_corpus() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        for name in targets(&folder).expect("there are some") {
            let mut corpus = fs::read_dir(folder.join("corpus").join(&name)).expect("a folder");
            assert!(corpus.next().is_some(), "{name}");
        }
    }
}
