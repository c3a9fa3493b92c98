//! Where things lie in this repository.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The repository's folders.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// The workspace that this program was built in, or the one of the running `cargo xtask`.
    pub(crate) fn find() -> Result<Workspace> {
        // Cargo sets it for `cargo run`; the folder at build time is the fallback for a direct call.
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest.parent().context("xtask lies in a workspace")?.to_owned();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => env::current_dir().context("the current folder")?.join(dir),
            None => root.join("target"),
        };
        Ok(Workspace { root, target })
    }

    /// The repository's root.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target folder for host builds.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// A target folder of its own for BPF builds: other flags, another compiler, and no lock or
    /// fingerprint shared with host builds.
    pub(crate) fn bpf_target(&self) -> PathBuf {
        self.target.join("bpf")
    }

    /// Tools that belong to this project alone.
    pub(crate) fn toolchain(&self) -> PathBuf {
        self.root.join(".toolchain")
    }
}
