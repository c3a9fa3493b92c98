//! The image's one layer: a file system as a compressed tar.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

/// A file system that is being put together. Everything in it belongs to root and has one time.
pub(super) struct Layer {
    tar: Builder<Vec<u8>>,
    made: u64,
    folders: BTreeSet<PathBuf>,
}

/// A layer that is done.
pub(super) struct Finished {
    /// The compressed tar.
    pub(super) bytes: Vec<u8>,
    /// The digest of the tar before it was compressed: what a runtime compares what it unpacked with.
    pub(super) diff_id: String,
}

impl Layer {
    /// An empty one, of this Unix time.
    pub(super) fn new(made: u64) -> Layer {
        Layer { tar: Builder::new(Vec::new()), made, folders: BTreeSet::new() }
    }

    /// Adds a folder, and those that it lies in.
    pub(super) fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.parents(path)?;
        if self.folders.insert(path.into()) {
            self.entry(&format!("{path}/"), EntryType::Directory, mode, &[])?;
        }
        Ok(())
    }

    /// Adds a file, and the folders that it lies in.
    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.parents(path)?;
        self.entry(path, EntryType::Regular, mode, bytes)
    }

    fn parents(&mut self, path: &str) -> Result<()> {
        let parent = Path::new(path).parent().and_then(Path::to_str);
        match parent {
            None | Some("") => Ok(()),
            Some(parent) => self.folder(parent, 0o755),
        }
    }

    fn entry(&mut self, path: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.made);
        header.set_size(bytes.len() as u64);
        self.tar.append_data(&mut header, path, bytes).with_context(|| format!("packing {path}"))
    }

    /// The layer's bytes. The gzip header names no file, no time and no system.
    pub(super) fn finish(self) -> Result<Finished> {
        let tar = self.tar.into_inner().context("packing the layer")?;
        let mut gzip =
            GzBuilder::new().operating_system(255).write(Vec::new(), Compression::best());
        gzip.write_all(&tar).context("compressing the layer")?;
        let bytes = gzip.finish().context("compressing the layer")?;
        Ok(Finished { bytes, diff_id: digest(&tar) })
    }
}

/// `sha256:` and the hexadecimal digest.
pub(super) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;

    fn layer() -> Finished {
        let mut layer = Layer::new(1_700_000_000);
        layer.folder("tmp", 0o1777).expect("it fits");
        layer.file("usr/bin/tracer", 0o755, b"binary").expect("it fits");
        layer.file("usr/bin/other", 0o644, b"").expect("it fits");
        layer.finish().expect("memory can be written to")
    }

    #[test]
    fn folders_come_before_their_files_and_once() {
        let finished = layer();
        let mut tar = tar::Archive::new(GzDecoder::new(finished.bytes.as_slice()));
        let entries = tar.entries().expect("a tar").map(|entry| {
            let entry = entry.expect("a whole entry");
            let header = entry.header();
            assert_eq!(
                (header.uid().ok(), header.gid().ok(), header.mtime().ok()),
                (Some(0), Some(0), Some(1_700_000_000))
            );
            let path = entry.path().expect("a path").display().to_string();
            format!("{path} {:o} {}", header.mode().expect("a mode"), entry.size())
        });
        expect_test::expect![[r#"
            tmp/ 1777 0
            usr/ 755 0
            usr/bin/ 755 0
            usr/bin/tracer 755 6
            usr/bin/other 644 0"#]]
        .assert_eq(&entries.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn the_same_files_give_the_same_bytes() {
        let (one, other) = (layer(), layer());
        assert_eq!((one.bytes, one.diff_id), (other.bytes, other.diff_id));
    }

    #[test]
    fn a_digest_is_that_of_sha256() {
        // FIPS 180-2, appendix B.1
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), abc);
    }
}
