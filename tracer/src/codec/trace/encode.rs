//! Events to frames.

use std::fmt;

use zstd::bulk::Compressor;

use super::{FRAME, FRAME_TARGET, Head, LIMIT, Loss, TRAILER, Trailer};
use crate::model::{Event, EventKind};

/// zstd's own default: stronger levels gain a few per cent and cost several times the time.
const LEVEL: i32 = 3;

/// An event that no frame can hold.
#[derive(Debug, thiserror::Error)]
#[error("an event of {size} bytes is too large for a trace")]
pub struct TooLarge {
    size: usize,
}

/// Collects events and makes frames of them.
pub struct FrameEncoder {
    compressor: Compressor<'static>,
    raw: Vec<u8>,
    /// Events in `raw`.
    events: u32,
    first_time: u64,
    last_time: u64,
    /// Of the whole trace: the number of the next event is `trailer.events`.
    trailer: Trailer,
}

impl FrameEncoder {
    /// Nothing yet.
    pub fn new() -> FrameEncoder {
        FrameEncoder {
            compressor: Compressor::new(LEVEL).expect("the level is one of zstd's"),
            raw: Vec::with_capacity(FRAME_TARGET + 1024),
            events: 0,
            first_time: 0,
            last_time: 0,
            trailer: Trailer::default(),
        }
    }

    /// Adds an event. True if the frame is large enough now to be taken.
    pub fn push(&mut self, event: &Event) -> Result<bool, TooLarge> {
        let before = self.raw.len();
        let time = event.time.0;
        let last = if self.events == 0 { time } else { self.last_time };
        // Wraps the same way in both directions, so any two times are told apart.
        let since = time.wrapping_sub(last).cast_signed();
        let raw = std::mem::take(&mut self.raw);
        self.raw = postcard::to_extend(&(since, &event.kind), raw)
            .expect("memory takes it, and events know their lengths");
        let size = self.raw.len() - before;
        if size > LIMIT - FRAME_TARGET {
            self.raw.truncate(before);
            return Err(TooLarge { size });
        }
        if self.events == 0 {
            self.first_time = time;
        }
        self.last_time = time;
        self.events += 1;
        self.trailer.events += 1;
        if let EventKind::Lost { source, count, .. } = event.kind {
            match self.trailer.losses.iter_mut().find(|loss| loss.source == source) {
                Some(loss) => loss.count = loss.count.saturating_add(count),
                None => self.trailer.losses.push(Loss { source, count }),
            }
        }
        Ok(self.raw.len() >= FRAME_TARGET)
    }

    /// Appends the events so far to `out` as one frame; nothing if there are none.
    pub fn take_frame(&mut self, out: &mut Vec<u8>) {
        if self.events == 0 {
            return;
        }
        let compressed = self.compressor.compress(&self.raw).expect("zstd made the room it needs");
        let head = Head {
            marker: FRAME,
            length: length(&compressed),
            raw_length: length(&self.raw),
            events: self.events,
            first_seq: self.trailer.events - u64::from(self.events),
            first_time: self.first_time,
            crc: crc32fast::hash(&compressed),
        };
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(&compressed);
        self.raw.clear();
        self.events = 0;
    }

    /// Appends the last frame and the trailer to `out`.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Trailer {
        self.take_frame(out);
        let json = serde_json::to_vec(&self.trailer).expect("a trailer is numbers and names");
        let head = Head {
            marker: TRAILER,
            length: length(&json),
            raw_length: length(&json),
            events: 0,
            first_seq: self.trailer.events,
            first_time: self.last_time,
            crc: crc32fast::hash(&json),
        };
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(&json);
        self.trailer
    }
}

impl Default for FrameEncoder {
    fn default() -> Self {
        FrameEncoder::new()
    }
}

impl fmt::Debug for FrameEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameEncoder")
            .field("events", &self.events)
            .field("bytes", &self.raw.len())
            .field("trailer", &self.trailer)
            .finish_non_exhaustive()
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("frames are below LIMIT")
}
