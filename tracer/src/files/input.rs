//! A file that somebody has: recognised by what is in it, unpacked while it is read.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::FileError;
use super::text;
use crate::codec::{conntrack, pcap, requests, trace, watch};

/// How much of a file is looked at to recognise it.
const HEAD: usize = 64 * 1024;

/// What is in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A trace of tracer.
    Trace,
    /// A capture: pcap or pcapng.
    Capture,
    /// Output of `conntrack`.
    Conntrack,
    /// What kubectl prints of objects, as JSON.
    Watch,
    /// A log of requests.
    Requests,
    /// Values of sysctls, as `sysctl` prints them.
    Sysctls,
}

/// Whether a file that begins with these bytes is of a kind.
type Recogniser = fn(&[u8]) -> bool;

/// How each kind is recognised by its first bytes. The first that fits counts: those with a magic number come
/// before those that are known by their words.
const KINDS: [(Kind, Recogniser); 6] = [
    (Kind::Trace, trace::is_trace),
    (Kind::Capture, pcap::is_capture),
    (Kind::Watch, watch::looks_like),
    (Kind::Conntrack, conntrack::looks_like),
    (Kind::Requests, requests::looks_like),
    (Kind::Sysctls, text::are_sysctls),
];

impl Kind {
    /// The kind of a file that begins with these bytes, or has nothing but them.
    pub fn of(head: &[u8]) -> Option<Kind> {
        KINDS.iter().find(|(_, is)| is(head)).map(|(kind, _)| *kind)
    }
}

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(head: &[u8]) -> Packing {
        match head {
            [0x1f, 0x8b, 8, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::None,
        }
    }
}

/// A file open for reading, unpacked if it was packed by gzip or zstd. Memory does not depend on its length.
///
/// Where the packed bytes are damaged or end too early, reading ends there as at the end of the file, and
/// [`Input::cut_short`] says so. A packer's checksum tells of damage only behind it, so what came before may have
/// some too.
pub struct Input {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    head: Cursor<Vec<u8>>,
    kind: Option<Kind>,
    packing: Packing,
    disk: Arc<Disk>,
    length: u64,
    cut_short: bool,
}

/// What is known of the file below the unpacking.
#[derive(Debug, Default)]
struct Disk {
    position: AtomicU64,
    failed: AtomicBool,
}

/// The file itself.
struct Counted {
    file: File,
    disk: Arc<Disk>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.file.read(buffer) {
            Ok(count) => {
                self.disk.position.fetch_add(count as u64, Ordering::Relaxed);
                Ok(count)
            }
            Err(error) => {
                let for_good = error.kind() != io::ErrorKind::Interrupted;
                self.disk.failed.fetch_or(for_good, Ordering::Relaxed);
                Err(error)
            }
        }
    }
}

impl Input {
    /// Opens a file and looks at its beginning.
    ///
    /// # Errors
    /// If it can't be opened or read.
    pub fn open(path: &Path) -> Result<Input, FileError> {
        let file =
            File::open(path).map_err(|source| FileError::Open { path: path.to_owned(), source })?;
        let unreadable = |source| FileError::Read { path: path.to_owned(), source };
        let length = file.metadata().map_err(unreadable)?.len();
        let disk = Arc::new(Disk::default());
        let mut counted = Counted { file, disk: Arc::clone(&disk) };
        let mut magic = Vec::new();
        counted.by_ref().take(4).read_to_end(&mut magic).map_err(unreadable)?;
        let packing = Packing::of(&magic);
        let whole = Cursor::new(magic).chain(counted);
        let reader: Box<dyn Read + Send> = match packing {
            Packing::None => Box::new(whole),
            Packing::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(HEAD, whole))),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(whole).map_err(unreadable)?),
        };
        let mut input = Input {
            path: path.to_owned(),
            reader,
            head: Cursor::new(Vec::new()),
            kind: None,
            packing,
            disk,
            length,
            cut_short: false,
        };
        let mut head = Vec::new();
        input.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(unreadable)?;
        input.kind = Kind::of(&head);
        input.head = Cursor::new(head);
        Ok(input)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its first bytes.
    pub fn head(&self) -> &[u8] {
        self.head.get_ref()
    }

    /// What is in it; none if that is nothing known.
    pub fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.head.get_ref().is_empty() && !self.cut_short
    }

    /// Whether it was found to end before its packer's end, or to be damaged there.
    pub fn cut_short(&self) -> bool {
        self.cut_short
    }

    /// How many bytes of the file have been read, for a progress bar.
    pub fn position(&self) -> u64 {
        self.disk.position.load(Ordering::Relaxed)
    }

    /// The file's length in bytes when it was opened; 0 for a pipe.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The error of a file that can't be used for anything here.
    pub fn unknown(&self) -> FileError {
        let path = self.path.clone();
        if self.is_empty() { FileError::Empty { path } } else { FileError::Unknown { path } }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.head.read(buffer)?;
        if count > 0 || buffer.is_empty() || self.cut_short {
            return Ok(count);
        }
        match self.reader.read(buffer) {
            Err(error)
                if error.kind() != io::ErrorKind::Interrupted
                    && self.packing != Packing::None
                    && !self.disk.failed.load(Ordering::Relaxed) =>
            {
                self.cut_short = true;
                Ok(0)
            }
            other => other,
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .field("packing", &self.packing)
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
