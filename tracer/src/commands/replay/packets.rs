//! Captures to events: their packets as one stream, and what they imply.

use std::path::PathBuf;

use crate::codec::pcap::{Counts, Loss};
use crate::files::{CaptureReader, FileError, Input, Piece};
use crate::infer::{Inference, Settings};
use crate::model::{Captured, Event};

/// The packets of all captures, by their times.
pub(super) struct Packets {
    captures: Vec<(CaptureReader, Option<Captured>)>,
    inference: Inference,
    done: bool,
}

impl Packets {
    pub(super) fn open(paths: &[PathBuf], settings: Settings) -> Result<Packets, FileError> {
        let mut packets =
            Packets { captures: Vec::new(), inference: Inference::new(settings), done: false };
        for path in paths {
            let mut reader = CaptureReader::new(Input::open(path)?);
            let first = advance(&mut reader, &mut packets.inference)?;
            packets.captures.push((reader, first));
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
            let heads = self.captures.iter_mut().filter(|(_, head)| head.is_some());
            let earliest = heads.min_by_key(|(_, head)| head.map(|packet| packet.time));
            match earliest {
                Some((reader, head)) => {
                    if let Some(packet) = head.take() {
                        self.inference.apply(&packet);
                    }
                    *head = advance(reader, &mut self.inference)?;
                }
                None => {
                    self.inference.finish();
                    self.done = true;
                }
            }
        }
    }

    /// What a reader must know, once all is read.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.inference.notes();
        for (reader, _) in &self.captures {
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

/// The next packet; what is missing before it is told to the inference.
fn advance(
    reader: &mut CaptureReader,
    inference: &mut Inference,
) -> Result<Option<Captured>, FileError> {
    for piece in reader {
        match piece? {
            Piece::Packet(packet) => return Ok(Some(packet)),
            Piece::Lost(Loss::Dropped { packets }) => inference.dropped(packets),
            Piece::Lost(Loss::Damaged { .. } | Loss::CutShort) => inference.damaged(),
        }
    }
    Ok(None)
}
