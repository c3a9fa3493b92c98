//! `cargo xtask build`: the BPF object, and `tracer` with the object inside.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process;
use crate::setup::{self, Need, Toolchain, Voice};
use crate::workspace::Workspace;

/// The variable that tells tracer's build script which object to embed.
pub(crate) const OBJECT_VARIABLE: &str = "TRACER_BPF_OBJECT";

/// Options of `cargo xtask build`
#[derive(Debug, Args)]
pub(crate) struct Options {}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, _options: &Options) -> Result<ExitCode> {
    let toolchain = setup::ensure(workspace, Need::Build, Voice::Deeds)?;
    let object = bpf_object(workspace, &toolchain)?;
    let tracer = release(workspace, &object)?;
    eprintln!("built {}", tracer.display());
    Ok(ExitCode::SUCCESS)
}

/// Builds the BPF object and says where it lies.
pub(crate) fn bpf_object(workspace: &Workspace, toolchain: &Toolchain) -> Result<PathBuf> {
    let manifest = fs::read_to_string(workspace.root().join("Cargo.toml")).context("Cargo.toml")?;
    let profile = if manifest.contains("[profile.bpf]") { "bpf" } else { "release" };
    // BPF runs with the byte order of the machine that it is loaded on.
    let target =
        if cfg!(target_endian = "big") { "bpfeb-unknown-none" } else { "bpfel-unknown-none" };
    let target_dir = workspace.bpf_target();

    let compiler = &toolchain.compiler;
    let mut command = match &compiler.cargo {
        Some(cargo) => process::cargo_at(cargo.as_os_str(), workspace.root()),
        None => process::cargo(workspace.root()),
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [toolchain.linker.clone()].into_iter().chain(env::split_paths(&path));
    command
        .args(["build", "--package", "tracer-ebpf", "--bin", "tracer-ebpf", "--features", "bpf"])
        .args(["--profile", profile, "-Z", "build-std=core", "--target", target, "--target-dir"])
        .arg(&target_dir)
        .env("PATH", env::join_paths(path).context("PATH")?)
        .env("RUSTC", &compiler.rustc)
        // Debian's compiler is a stable one, and building core is not.
        .env("RUSTC_BOOTSTRAP", "1")
        // bpf-linker loads the LLVM that it finds here.
        .env("LD_LIBRARY_PATH", &compiler.libraries);
    process::show(&mut command).context("building the BPF object")?;

    let object = target_dir.join(target).join(profile).join("tracer-ebpf");
    if !object.exists() {
        bail!("the BPF build made no {}", object.display());
    }
    Ok(object)
}

/// Builds target/release/tracer around the object and says where it lies.
pub(crate) fn release(workspace: &Workspace, object: &Path) -> Result<PathBuf> {
    let mut command = process::host_cargo(workspace.root());
    command.args(["build", "--release", "--package", "tracer"]).env(OBJECT_VARIABLE, object);
    process::show(&mut command).context("building tracer")?;
    Ok(workspace.target().join("release/tracer"))
}
