//! The trace file's bytes. Numbers are little-endian.
//!
//! ```text
//! trace    = preamble frame* trailer
//! preamble = magic (8) version (2) length (4) crc32 (4) header: the TraceHeader as JSON (length)
//! frame    = head (40) events, compressed with zstd
//! trailer  = head (40) the Trailer as JSON
//! head     = marker (4) length (4) raw length (4) events (4) first seq (8) first time (8)
//!            crc32 of what follows (4) crc32 of the head so far (4)
//! event    = time since the event before (zigzag varint) EventKind; both in postcard's wire format
//! ```
//!
//! An IPv6 address has no scope and no flow label here: packets carry neither, so events don't either.
//!
//! Every byte is under a checksum. A frame needs nothing of another frame, and its head has a checksum of its
//! own, so a reader finds the next whole frame behind any damage and, by the sequence numbers, how many events
//! are missing. Whatever the bytes are, decoding ends: with an error for the preamble, with
//! [`EventKind::Lost`](crate::model::EventKind::Lost) behind it.

mod decode;
mod encode;
mod preamble;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use decode::{Advanced, Decoder, Step};
pub use encode::{FrameEncoder, TooLarge};
pub use preamble::{HeaderError, Preamble, encode_header, is_trace};

use crate::model::LossSource;

/// The version of the format that is written. A reader reads it and all before it.
pub const VERSION: u16 = 1;

/// The first bytes of every trace. Not text, so that nothing takes it for some, and with a line end, so that
/// a transfer as text shows.
const MAGIC: [u8; 8] = *b"\x89tracer\n";

/// The first bytes of a frame of events.
const FRAME: [u8; 4] = *b"\xf5evt";

/// The first bytes of the trailer.
const TRAILER: [u8; 4] = *b"\xf5end";

/// A frame is closed when its events reach this many bytes before compression.
const FRAME_TARGET: usize = 256 * 1024;

/// No frame and no header is larger than this, before or after compression: what a reader must keep in memory.
const LIMIT: usize = 16 * 1024 * 1024;

/// What stands at the end of a trace that was finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// The events in the file.
    pub events: u64,
    /// How many events the file says were lost, by source.
    pub losses: Vec<Loss>,
}

/// What one source lost, summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Where.
    pub source: LossSource,
    /// How many events.
    pub count: u64,
}

/// What stands before a frame's or the trailer's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    marker: [u8; 4],
    /// Bytes that follow.
    length: u32,
    /// Bytes of events after decompression.
    raw_length: u32,
    events: u32,
    first_seq: u64,
    first_time: u64,
    crc: u32,
}

/// Whether a checksum is the one that it should be. A fuzzer (`--cfg fuzzing`) can't make one, and what lies behind it
/// must hold against any bytes, so there every one is right.
fn is_right(found: u32, computed: u32) -> bool {
    cfg!(fuzzing) || found == computed
}

impl Head {
    const SIZE: usize = 40;

    fn encode(&self) -> [u8; Head::SIZE] {
        let mut bytes = [0; Head::SIZE];
        bytes[0..4].copy_from_slice(&self.marker);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.raw_length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.events.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_time.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.crc.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..36]);
        bytes[36..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// None if these are not a head's bytes, or damaged ones, or such as no writer makes.
    fn decode(bytes: &[u8; Head::SIZE]) -> Option<Head> {
        let u32_at = |at: usize| u32::from_le_bytes(array(&bytes[at..at + 4]));
        let u64_at = |at: usize| u64::from_le_bytes(array(&bytes[at..at + 8]));
        let marker = array(&bytes[0..4]);
        let is_marked = marker == FRAME || marker == TRAILER;
        if !is_marked || !is_right(u32_at(36), crc32fast::hash(&bytes[..36])) {
            return None;
        }
        let head = Head {
            marker,
            length: u32_at(4),
            raw_length: u32_at(8),
            events: u32_at(12),
            first_seq: u64_at(16),
            first_time: u64_at(24),
            crc: u32_at(32),
        };
        let within = |length: u32| length as usize <= LIMIT;
        (within(head.length) && within(head.raw_length)).then_some(head)
    }
}

/// The slice as an array of its own length.
fn array<const N: usize>(slice: &[u8]) -> [u8; N] {
    slice.try_into().expect("the slice was cut to this length")
}
