//! Reading a capture, of any size in the same memory.

use std::io::{self, Read};

use super::{FileError, Input};
use crate::codec::pcap::{Counts, Decoder, Loss, Step};
use crate::model::Captured;

/// Bytes asked of the file at once.
const CHUNK: usize = 256 * 1024;

/// What a capture has next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A packet.
    Packet(Captured),
    /// Packets are missing here.
    Lost(Loss),
}

/// A capture, read from its beginning to its end: an iterator of its packets, in the order of the file.
///
/// Damage is no error but a [`Piece::Lost`]. An error, of the disk or because this is no capture that can be read,
/// ends the iteration.
#[derive(Debug)]
pub struct CaptureReader {
    input: Input,
    decoder: Decoder,
    chunk: Vec<u8>,
    done: bool,
}

impl CaptureReader {
    /// Reads the capture in this file.
    pub fn new(input: Input) -> CaptureReader {
        CaptureReader { input, decoder: Decoder::new(), chunk: vec![0; CHUNK], done: false }
    }

    /// The file, for its progress.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// What became of the packets so far.
    pub fn counts(&self) -> &Counts {
        self.decoder.counts()
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

    fn fail(&mut self, error: FileError) -> Option<Result<Piece, FileError>> {
        self.done = true;
        Some(Err(error))
    }
}

impl Iterator for CaptureReader {
    type Item = Result<Piece, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.decoder.step() {
                Ok(Step::Packet(packet)) => return Some(Ok(Piece::Packet(packet))),
                Ok(Step::Lost(loss)) => return Some(Ok(Piece::Lost(loss))),
                Ok(Step::More) => {
                    if let Err(source) = self.read_more() {
                        let path = self.input.path().to_owned();
                        return self.fail(FileError::Read { path, source });
                    }
                }
                Ok(Step::End) => {
                    self.done = true;
                    // The packed file may end right between two packets.
                    if self.input.cut_short() && !self.counts().cut_short {
                        return Some(Ok(Piece::Lost(Loss::CutShort)));
                    }
                }
                Err(why) => {
                    let path = self.input.path().to_owned();
                    return self.fail(FileError::Capture { path, why });
                }
            }
        }
        None
    }
}
