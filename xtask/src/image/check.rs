//! The container image, tried: unpacked as a runtime does, and its program run in that file system.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::workspace::Workspace;

/// Where a runtime mounts the kernel's file systems.
const MOUNTS: [&str; 3] = ["proc", "sys", "dev"];

/// Mounts /proc and /sys into the new root, as a runtime does, and runs the rest of its arguments there. The
/// mounts are in a namespace of their own and end with it.
const ENTER: &str = "set -e; root=$1; shift; mount -t proc proc \"$root/proc\"; mount --rbind /sys \"$root/sys\"; \
                     exec chroot \"$root\" \"$@\"";

/// Runs `doctor`, `replay` and `record` from the root file system of this archive, unpacked in `folder`, which
/// is removed again.
pub(super) fn run(workspace: &Workspace, archive: &Path, folder: &Path) -> Result<()> {
    // What an interrupted run left.
    let _ = fs::remove_dir_all(folder);
    let root = folder.join("root");
    unpack(archive, &root)?;
    // From a file system without a shell, a linker or a library.
    let doctor = tracer(&root, &["doctor"])?;
    let said = String::from_utf8_lossy(&doctor.stdout);
    ensure!(said.contains("BPF programs                   in this binary"), "doctor said {said}");
    let recording = workspace.root().join("examples/kubernetes-1.36-readiness");
    copy(&recording, &root.join("tmp/recording"))?;
    let replay = tracer(&root, &["replay", "/tmp/recording", "--format", "json"])?;
    ensure!(outcome(&replay)? == "supported", "replay said {}", outcome(&replay)?);
    // A Service that nobody asks: whatever this machine allows, that is no crash.
    let record = ["record", "--service", "192.0.2.1:80", "--duration", "1s", "--format", "json"];
    let record = tracer(&root, &record)?;
    match record.status.code() {
        Some(3) => {
            ensure!(outcome(&record)? == "inconclusive", "record said {}", outcome(&record)?)
        }
        status => anyhow::bail!(
            "record ended with {status:?}: {}",
            String::from_utf8_lossy(&record.stderr).trim_end()
        ),
    }
    fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))
}

/// Follows the index to the manifest, to the layer, and unpacks that.
fn unpack(archive: &Path, root: &Path) -> Result<()> {
    let layout = root.with_extension("oci");
    let file = fs::File::open(archive).with_context(|| format!("opening {}", archive.display()))?;
    tar::Archive::new(file).unpack(&layout).context("unpacking the archive")?;
    let read = |path: &str| -> Result<Value> {
        let bytes = fs::read(layout.join(path)).with_context(|| format!("reading {path}"))?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    let blob = |descriptor: &Value| -> Result<String> {
        let digest = descriptor["digest"].as_str().context("a descriptor without a digest")?;
        Ok(format!("blobs/{}", digest.replace(':', "/")))
    };
    let manifest = read(&blob(&read("index.json")?["manifests"][0])?)?;
    let layer = fs::File::open(layout.join(blob(&manifest["layers"][0])?)).context("the layer")?;
    tar::Archive::new(GzDecoder::new(layer)).unpack(root).context("unpacking the layer")?;
    for mount in MOUNTS {
        fs::create_dir_all(root.join(mount)).with_context(|| format!("making /{mount}"))?;
    }
    Ok(())
}

/// Runs the image's entry point in its file system.
fn tracer(root: &Path, args: &[&str]) -> Result<Output> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--fork", "--kill-child"]);
    command.args(["sh", "-c", ENTER, "sh"]).arg(root).arg("/usr/bin/tracer").args(args);
    command.stdin(Stdio::null()).output().context("starting unshare")
}

fn outcome(output: &Output) -> Result<String> {
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("no report: {}", String::from_utf8_lossy(&output.stderr).trim_end())
    })?;
    let outcome = report.pointer("/hypothesis/outcome").and_then(Value::as_str);
    Ok(outcome.context("a report without an outcome")?.to_owned())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
