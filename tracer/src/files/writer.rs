//! Writing a trace as it happens.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::FileError;
use crate::codec::trace::{self, FrameEncoder, Trailer};
use crate::model::{Event, TraceHeader};

/// Readable and writable for its owner only: a trace says who speaks to whom.
const MODE: u32 = 0o600;

/// A frame that is not full is written after this time.
const FLUSH_AFTER: Duration = Duration::from_secs(1);

/// What to do where a file of this name exists. A file that is not a trace is never replaced; a device or a
/// pipe is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it and say so.
    Keep,
    /// Replace it if it is a trace, or empty.
    Replace,
}

/// Tries whether [`TraceWriter::create`] would have its file, and leaves everything as it was: for a caller
/// who has much to do before the header is known.
///
/// # Errors
/// As [`TraceWriter::create`].
pub fn check(path: &Path, existing: Existing) -> Result<(), FileError> {
    match open(path, existing)? {
        Opened::New(_) => fs::remove_file(path)
            .map_err(|source| FileError::Create { path: path.to_owned(), source }),
        Opened::Old(_) | Opened::Special(_) => Ok(()),
    }
}

/// A trace file that is being written. Append-only: what is lost in a crash is what came since the last
/// [`TraceWriter::tick`] that found a second gone.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    frames: FrameEncoder,
    buffer: Vec<u8>,
    /// Events that are in the file, in whole frames.
    written: u64,
    /// Events appended.
    appended: u64,
    flushed: Instant,
    /// After an error the file ends in part of a frame, and nothing may be written behind it.
    broken: bool,
}

impl TraceWriter {
    /// Creates the file, for its owner only, and writes the header.
    pub fn create(
        path: &Path,
        header: &TraceHeader,
        existing: Existing,
    ) -> Result<TraceWriter, FileError> {
        let mut writer = TraceWriter {
            path: path.to_owned(),
            file: create(path, existing)?,
            frames: FrameEncoder::new(),
            buffer: trace::encode_header(header),
            written: 0,
            appended: 0,
            flushed: Instant::now(),
            broken: false,
        };
        writer.write_buffer()?;
        Ok(writer)
    }

    /// Appends an event; it reaches the file with its frame. An event too large for a trace is an error that
    /// leaves the trace as it was.
    pub fn append(&mut self, event: &Event) -> Result<(), FileError> {
        let full = self
            .frames
            .push(event)
            .map_err(|source| FileError::Event { path: self.path.clone(), source })?;
        self.appended += 1;
        if full { self.flush() } else { Ok(()) }
    }

    /// To be called a few times a second: writes what has waited for a second.
    pub fn tick(&mut self) -> Result<(), FileError> {
        self.tick_at(Instant::now())
    }

    pub(super) fn tick_at(&mut self, now: Instant) -> Result<(), FileError> {
        if now.saturating_duration_since(self.flushed) < FLUSH_AFTER {
            return Ok(());
        }
        self.flush()
    }

    /// Writes all events appended so far.
    pub fn flush(&mut self) -> Result<(), FileError> {
        self.frames.take_frame(&mut self.buffer);
        self.flushed = Instant::now();
        self.write_buffer()?;
        self.written = self.appended;
        Ok(())
    }

    /// Writes what is left and the trailer, and waits until the disk has it all.
    pub fn finish(mut self) -> Result<Trailer, FileError> {
        self.flush()?;
        let trailer = std::mem::take(&mut self.frames).finish(&mut self.buffer);
        self.write_buffer()?;
        match self.file.sync_all() {
            // A pipe or a device has no disk to wait for (fsync(2): EINVAL).
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(self.failed(error)),
            _ => Ok(trailer),
        }
    }

    fn write_buffer(&mut self) -> Result<(), FileError> {
        if self.broken {
            self.buffer.clear();
            return Err(self.failed(io::Error::other("an earlier write to it failed")));
        }
        let result = self.file.write_all(&self.buffer);
        self.buffer.clear();
        result.map_err(|error| {
            self.broken = true;
            self.failed(error)
        })
    }

    fn failed(&self, source: io::Error) -> FileError {
        FileError::Write { path: self.path.clone(), events: self.written, source }
    }
}

/// A trace that nobody finished keeps what was appended, and has no trailer: it was cut short.
impl Drop for TraceWriter {
    fn drop(&mut self) {
        if !self.broken
            && let Err(error) = self.flush()
        {
            log::warn!("{error}");
        }
    }
}

/// The file for a trace that is written whole, as it came from elsewhere.
///
/// # Errors
/// As [`TraceWriter::create`].
pub fn create(path: &Path, existing: Existing) -> Result<File, FileError> {
    let failed = |source| FileError::Create { path: path.to_owned(), source };
    match open(path, existing)? {
        Opened::New(file) | Opened::Special(file) => Ok(file),
        Opened::Old(mut file) => {
            file.set_permissions(Permissions::from_mode(MODE)).map_err(failed)?;
            file.set_len(0).map_err(failed)?;
            file.rewind().map_err(failed)?;
            Ok(file)
        }
    }
}

/// A file that may be written to.
enum Opened {
    /// It was not there before.
    New(File),
    /// To be replaced; nothing has happened to it yet.
    Old(File),
    /// A device or a pipe.
    Special(File),
}

fn open(path: &Path, existing: Existing) -> Result<Opened, FileError> {
    let failed = |source| FileError::Create { path: path.to_owned(), source };
    match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => return other.map(Opened::New).map_err(failed),
    }
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return OpenOptions::new().write(true).open(path).map(Opened::Special).map_err(failed);
    }
    if existing == Existing::Keep {
        return Err(FileError::Exists { path: path.to_owned() });
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    let mut start = Vec::new();
    (&file).take(16).read_to_end(&mut start).map_err(failed)?;
    if !start.is_empty() && !trace::is_trace(&start) {
        return Err(FileError::NotReplaced { path: path.to_owned() });
    }
    Ok(Opened::Old(file))
}
