//! `cargo xtask image`: a container image as one tar archive, made without a container runtime.
//!
//! One static binary, its list of parts and an empty `/tmp`; no shell, no tools: the lab is not for containers.
//! The same sources and compiler give the same bytes: times are the commit's, paths of this machine are not in the
//! binary, and what is listed is sorted.

mod archive;
mod check;
mod layer;
mod sbom;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::build;
use crate::process;
use crate::setup::{self, Need, Voice};
use crate::workspace::Workspace;

use archive::Image;
use layer::Layer;

/// Options of `cargo xtask image`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the archive goes [default: target/image/tracer.tar]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Then unpack it, and run its program in its own file system; as root
    #[arg(long)]
    check: bool,

    /// The image's name and tag [default: tracer, and this version]
    #[arg(long, value_name = "NAME:TAG")]
    tag: Option<String>,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let output = match &options.output {
        Some(path) => env::current_dir().context("the current folder")?.join(path),
        None => target(workspace).join("tracer.tar"),
    };
    if let Some(tag) = &options.tag {
        check_tag(tag)?;
    }
    let toolchain = setup::ensure(workspace, Need::Build, Voice::Deeds)?;
    let object = build::bpf_object(workspace, &toolchain)?;
    let made = make(workspace, &object, &output, options.tag.as_deref())?;
    eprintln!("built {} ({made})", output.display());
    if options.check {
        check::run(workspace, &output, &target(workspace).join("check"))?;
        eprintln!("checked: doctor, replay and record run in its file system");
    }
    eprintln!(
        "load it: kind load image-archive FILE, ctr -n k8s.io images import FILE, docker load -i FILE"
    );
    Ok(ExitCode::SUCCESS)
}

/// Builds the image and runs its program in its own file system.
pub(crate) fn test(workspace: &Workspace, object: &Path) -> Result<()> {
    let archive = target(workspace).join("test.tar");
    let made = make(workspace, object, &archive, None)?;
    check::run(workspace, &archive, &target(workspace).join("check"))?;
    println!("{made}: doctor, replay and record run in its file system");
    fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))
}

/// Builds the image around the BPF object, writes the archive, and says by what it is known: tag and digest.
pub(crate) fn make(
    workspace: &Workspace,
    object: &Path,
    output: &Path,
    tag: Option<&str>,
) -> Result<String> {
    let platform = Platform::of_this_machine()?;
    let binary = static_binary(workspace, object, &platform)?;
    let metadata = sbom::metadata(workspace.root(), &platform.triple)?;
    let parts = sbom::render(&metadata)?;
    let made = made_at(workspace.root())?;

    let mut layer = Layer::new(made);
    // For a trace that is recorded in a pod without a volume.
    layer.folder("tmp", 0o1777)?;
    layer.file("usr/bin/tracer", 0o755, &fs::read(&binary).context("reading the binary")?)?;
    layer.file("usr/share/doc/tracer/sbom.cdx.json", 0o644, parts.as_bytes())?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let text = fs::read(workspace.root().join(licence)).context(licence)?;
        layer.file(&format!("usr/share/doc/tracer/{licence}"), 0o644, &text)?;
    }
    let tag = tag.map_or_else(|| format!("tracer:{}", metadata.version), str::to_owned);
    let image = Image {
        tag,
        version: metadata.version.clone(),
        licenses: metadata.licenses.clone(),
        architecture: platform.architecture.to_owned(),
        revision: git(workspace.root(), &["rev-parse", "HEAD"]).ok(),
        made,
        layer: layer.finish()?,
    };
    let folder = output.parent().context("the archive needs a name")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let digest = image.write(output)?;
    Ok(format!("{}, {digest}", image.tag))
}

/// A target folder of its own: other flags than the host's builds.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.target().join("image")
}

/// What the image runs on.
struct Platform {
    /// As rustc names it.
    triple: String,
    /// As Go, and so OCI, names it.
    architecture: &'static str,
}

impl Platform {
    /// The BPF object and the binary are built for the machine that builds.
    fn of_this_machine() -> Result<Platform> {
        let (machine, architecture) = match env::consts::ARCH {
            "x86_64" => ("x86_64", "amd64"),
            "aarch64" => ("aarch64", "arm64"),
            other => {
                anyhow::bail!("an image for {other} was never tried; there are: x86_64, aarch64")
            }
        };
        Ok(Platform { triple: format!("{machine}-unknown-linux-gnu"), architecture })
    }
}

/// Builds `tracer` without a dynamic linker, and without paths of this machine in it.
fn static_binary(workspace: &Workspace, object: &Path, platform: &Platform) -> Result<PathBuf> {
    let target_dir = target(workspace);
    let home = cargo_home().context("neither CARGO_HOME nor HOME is set")?;
    let mut flags = OsString::from("-Ctarget-feature=+crt-static");
    for (from, to) in [(workspace.root(), "/tracer"), (&home, "/cargo")] {
        // Between flags: the unit separator, since a path may hold a blank.
        flags.push("\u{1f}--remap-path-prefix=");
        flags.push(from);
        flags.push(format!("={to}"));
    }
    let mut command = process::cargo(workspace.root());
    command
        .args(["build", "--release", "--locked", "--package", "tracer", "--bin", "tracer"])
        // Named, so that the flags are not for build scripts and macros, which can't be static.
        .args(["--target", &platform.triple, "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env(build::OBJECT_VARIABLE, object);
    process::show(&mut command).context("building a static tracer")?;
    Ok(target_dir.join(&platform.triple).join("release/tracer"))
}

fn cargo_home() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home)
}

/// The Unix time, in seconds, that everything in the image has: SOURCE_DATE_EPOCH
/// (reproducible-builds.org/specs/source-date-epoch), else the commit's.
fn made_at(root: &Path) -> Result<u64> {
    let text = match env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => git(root, &["log", "-1", "--format=%ct"])
            .context("when was this made? set SOURCE_DATE_EPOCH")?,
    };
    text.trim().parse().with_context(|| format!("{:?} is no Unix time", text.trim()))
}

fn git(root: &Path, args: &[&str]) -> Result<String> {
    let mut command = std::process::Command::new("git");
    Ok(process::read(command.arg("-C").arg(root).args(args))?.trim().to_owned())
}

/// Registries and runtimes want a lower-case name and a tag
/// (github.com/opencontainers/distribution-spec, "Pulling manifests").
fn check_tag(tag: &str) -> Result<()> {
    let (name, version) = tag.rsplit_once(':').unwrap_or((tag, ""));
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/:".contains(c);
    let is_version = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts_well = |part: &str| part.starts_with(|c: char| c.is_ascii_alphanumeric());
    ensure!(
        starts_well(name)
            && name.chars().all(is_name)
            && starts_well(version)
            && version.len() <= 128
            && version.chars().all(is_version),
        "{tag:?} is no image name; write it like tracer:0.1.0 or registry.example/tracer:0.1.0"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_has_a_name_and_a_version() {
        for right in ["tracer:0.1.0", "registry.example:5000/team/tracer:v1", "a:1"] {
            check_tag(right).expect(right);
        }
        for wrong in ["tracer", "Tracer:1", ":1", "tracer:", "tra cer:1", "tracer:a/b", "-a:1"] {
            assert!(check_tag(wrong).is_err(), "{wrong}");
        }
    }
}
