//! Reading a trace back, whatever has happened to it.

use std::io::{self, Read};
use std::path::Path;

use super::{FileError, Input};
use crate::codec::trace::{Advanced, Decoder, Preamble, Trailer};
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
    input: Input,
    header: TraceHeader,
    decoder: Decoder,
    chunk: Vec<u8>,
    done: bool,
}

impl TraceReader {
    /// Opens a trace and reads its header.
    pub fn open(path: &Path) -> Result<TraceReader, FileError> {
        TraceReader::new(Input::open(path)?)
    }

    /// Reads the header of the trace in this file.
    pub fn new(mut input: Input) -> Result<TraceReader, FileError> {
        let path = input.path().to_owned();
        let unreadable = |source| FileError::Read { path: path.clone(), source };
        let not_a_trace = |why| FileError::Header { path: path.clone(), why };
        let fixed = read_up_to(&mut input, Preamble::SIZE).map_err(unreadable)?;
        let preamble = Preamble::decode(&fixed).map_err(not_a_trace)?;
        let json = read_up_to(&mut input, preamble.header_len()).map_err(unreadable)?;
        let header = preamble.header(&json).map_err(not_a_trace)?;
        Ok(TraceReader {
            input,
            decoder: Decoder::new(header.began),
            header,
            chunk: vec![0; CHUNK],
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
        self.input.position()
    }

    /// The file's length in bytes when it was opened; 0 for a pipe.
    pub fn length(&self) -> u64 {
        self.input.length()
    }

    /// The next event, lent: no copy of it is made. None at the end.
    ///
    /// # Errors
    /// If the file can't be read any further; then this is the end.
    pub fn advance(&mut self) -> Result<Option<&Event>, FileError> {
        while !self.done {
            match self.decoder.advance() {
                Advanced::Event => return Ok(Some(self.decoder.event())),
                Advanced::End => self.done = true,
                Advanced::More => {
                    if let Err(source) = self.read_more() {
                        self.done = true;
                        let path = self.input.path().to_owned();
                        return Err(FileError::Read { path, source });
                    }
                }
            }
        }
        Ok(None)
    }

    fn read_more(&mut self) -> io::Result<()> {
        let count = loop {
            match self.input.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if count == 0 {
            self.decoder.close();
        }
        self.decoder.feed(&self.chunk[..count]);
        Ok(())
    }
}

impl Iterator for TraceReader {
    type Item = Result<Event, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().map(|event| event.cloned()).transpose()
    }
}

/// That many bytes, or as many as there are.
fn read_up_to(file: &mut Input, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.by_ref().take(count as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
