//! Captures to events: their packets as one stream, and what they imply.

use std::path::PathBuf;

use crate::codec::pcap::{Counts, Loss};
use crate::files::{CaptureReader, FileError, Input, Piece};
use crate::infer::{Inference, Settings};
use crate::model::{Captured, Event, WallNs};

/// The packets of all captures, by their times.
pub(super) struct Packets {
    captures: Vec<Capture>,
    inference: Inference,
    done: bool,
}

/// A capture, and its next packet.
struct Capture {
    reader: CaptureReader,
    /// By how many nanoseconds its clock is ahead.
    ahead: i64,
    head: Option<Captured>,
}

impl Packets {
    /// Opens them; `ahead` has for each by how many nanoseconds its clock is ahead.
    pub(super) fn open(
        paths: &[PathBuf],
        ahead: &[i64],
        settings: Settings,
    ) -> Result<Packets, FileError> {
        let mut packets =
            Packets { captures: Vec::new(), inference: Inference::new(settings), done: false };
        for (path, ahead) in paths.iter().zip(ahead) {
            let reader = CaptureReader::new(Input::open(path)?);
            let mut capture = Capture { reader, ahead: *ahead, head: None };
            capture.advance(&mut packets.inference)?;
            packets.captures.push(capture);
        }
        Ok(packets)
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Result<Option<Event>, FileError> {
        loop {
            if let Some(event) = self.inference.next() {
                return Ok(Some(event));
            }
            if self.done {
                return Ok(None);
            }
            let heads = self.captures.iter_mut().filter(|capture| capture.head.is_some());
            let earliest = heads.min_by_key(|capture| capture.head.map(|packet| packet.time));
            match earliest {
                Some(capture) => {
                    if let Some(packet) = capture.head.take() {
                        self.inference.apply(&packet);
                    }
                    capture.advance(&mut self.inference)?;
                }
                None => {
                    self.inference.finish();
                    self.done = true;
                }
            }
        }
    }

    /// How many bytes of the files have been read.
    pub(super) fn position(&self) -> u64 {
        self.captures.iter().map(|capture| capture.reader.input().position()).sum()
    }

    /// What a reader must know, once all is read.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.inference.notes();
        for Capture { reader, .. } in &self.captures {
            let counts: &Counts = reader.counts();
            let over: Vec<String> =
                counts.passed_over().map(|(why, count)| format!("{count} {why}")).collect();
            if !over.is_empty() {
                let path = reader.input().path().display();
                notes.push(format!("packets of {path} that tell nothing: {}", over.join(", ")));
            }
        }
        notes
    }
}

impl Capture {
    /// Takes the next packet; what is missing before it is told to the inference.
    fn advance(&mut self, inference: &mut Inference) -> Result<(), FileError> {
        self.head = None;
        for piece in &mut self.reader {
            match piece? {
                Piece::Packet(packet) => {
                    let time = WallNs(packet.time.0.saturating_sub(self.ahead));
                    self.head = Some(Captured { time, ..packet });
                    return Ok(());
                }
                Piece::Lost(Loss::Dropped { packets }) => inference.dropped(packets),
                Piece::Lost(Loss::Damaged { .. } | Loss::CutShort) => inference.damaged(),
            }
        }
        Ok(())
    }
}
