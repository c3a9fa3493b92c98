//! Reading a trace back, whatever has happened to it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::FileError;
use crate::codec::trace::{Decoder, Preamble, Step, Trailer};
use crate::model::{Event, TraceHeader};

/// Bytes asked of the disk at once.
const CHUNK: usize = 256 * 1024;

/// A trace file, read from its beginning to its end: an iterator of its events, in their order. Memory does
/// not depend on the file's length.
///
/// Damage is an event, [`EventKind::Lost`](crate::model::EventKind::Lost) from the trace file, at the place where events are
/// missing; also where the trace ends without its trailer. An error, of the disk, ends the iteration.
#[derive(Debug)]
pub struct TraceReader {
    path: PathBuf,
    file: File,
    header: TraceHeader,
    decoder: Decoder,
    chunk: Vec<u8>,
    position: u64,
    length: u64,
    done: bool,
}

impl TraceReader {
    /// Opens a trace and reads its header.
    pub fn open(path: &Path) -> Result<TraceReader, FileError> {
        let mut file =
            File::open(path).map_err(|source| FileError::Open { path: path.to_owned(), source })?;
        let unreadable = |source| FileError::Read { path: path.to_owned(), source };
        let not_a_trace = |why| FileError::Header { path: path.to_owned(), why };
        let length = file.metadata().map_err(unreadable)?.len();
        let fixed = read_up_to(&mut file, Preamble::SIZE).map_err(unreadable)?;
        let preamble = Preamble::decode(&fixed).map_err(not_a_trace)?;
        let json = read_up_to(&mut file, preamble.header_len()).map_err(unreadable)?;
        let header = preamble.header(&json).map_err(not_a_trace)?;
        Ok(TraceReader {
            path: path.to_owned(),
            decoder: Decoder::new(header.began),
            header,
            file,
            chunk: vec![0; CHUNK],
            position: (fixed.len() + json.len()) as u64,
            length,
            done: false,
        })
    }

    /// The trace's header.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The trailer, once the end was read and if there was one.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.decoder.trailer()
    }

    /// How many bytes have been read, for a progress bar.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file's length in bytes when it was opened; 0 for a pipe.
    pub fn length(&self) -> u64 {
        self.length
    }

    fn read_more(&mut self) -> io::Result<()> {
        let count = loop {
            match self.file.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            self.decoder.close();
        }
        self.decoder.feed(&self.chunk[..count]);
        self.position += count as u64;
        Ok(())
    }
}

impl Iterator for TraceReader {
    type Item = Result<Event, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        loop {
            match self.decoder.step() {
                Step::Event(event) => return Some(Ok(event)),
                Step::End => {
                    self.done = true;
                    return None;
                }
                Step::More => {
                    if let Err(source) = self.read_more() {
                        self.done = true;
                        return Some(Err(FileError::Read { path: self.path.clone(), source }));
                    }
                }
            }
        }
    }
}

/// That many bytes, or as many as there are.
fn read_up_to(file: &mut File, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.by_ref().take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
