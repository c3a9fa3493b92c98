//! Frames to events, through any damage.

use std::fmt;

use serde::Deserialize;
use zstd::bulk::Decompressor;

use super::{FRAME, Head, Trailer, is_right};
use crate::model::{Event, EventKind, LossSource, MonoNs};

/// What [`Decoder::step`] has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and nearly always an event")]
pub enum Step {
    /// The next event.
    Event(Event),
    /// No whole frame is left: feed more bytes, or close.
    More,
    /// There is nothing more.
    End,
}

/// What [`Decoder::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// The next event: [`Decoder::event`].
    Event,
    /// No whole frame is left: feed more bytes, or close.
    More,
    /// There is nothing more.
    End,
}

/// Decodes what follows the preamble, from bytes as they come. Keeps one frame in memory.
///
/// Damage never ends it: where events are missing, or bytes make no sense, stands one
/// [`EventKind::Lost`] from [`LossSource::TraceFile`], between the events before and the events after. Its count
/// comes from the sequence numbers; where those don't tell, it is 1.
pub struct Decoder {
    decompressor: Decompressor<'static>,
    input: Vec<u8>,
    /// How much of `input` has been used.
    used: usize,
    closed: bool,
    /// The open frame's events.
    raw: Vec<u8>,
    at: usize,
    /// Events of the open frame that are still to come.
    left: u32,
    /// The next event's number.
    seq: u64,
    /// The least number of events that the trace must have, by the heads seen.
    at_least: u64,
    /// The time of the event before.
    time: MonoNs,
    /// Whether damage was met that no Lost event tells of yet.
    damaged: bool,
    trailer: Option<Trailer>,
    ended: bool,
    /// The event last come to. An event is large: it is decoded to this place and lent from it, since each move of
    /// it would cost as much as a good part of its decoding.
    event: Event,
}

impl Decoder {
    /// For a trace that began then: a loss before the first event happened since.
    pub fn new(began: MonoNs) -> Decoder {
        Decoder {
            decompressor: Decompressor::new().expect("memory for zstd's state"),
            input: Vec::new(),
            used: 0,
            closed: false,
            raw: Vec::new(),
            at: 0,
            left: 0,
            seq: 0,
            at_least: 0,
            time: began,
            damaged: false,
            trailer: None,
            ended: false,
            event: Event { time: began, kind: EventKind::Ended },
        }
    }

    /// Adds bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.drain(..self.used);
        self.used = 0;
        self.input.extend_from_slice(bytes);
    }

    /// Says that there are no more bytes.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// What the trace says of itself at its end; none until then, or if it was cut short.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.trailer.as_ref()
    }

    /// The next event, to keep.
    pub fn step(&mut self) -> Step {
        match self.advance() {
            Advanced::Event => Step::Event(self.event.clone()),
            Advanced::More => Step::More,
            Advanced::End => Step::End,
        }
    }

    /// The event that was last come to.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Goes on to the next event.
    pub fn advance(&mut self) -> Advanced {
        loop {
            if self.left > 0 {
                if self.next_of_frame().is_some() {
                    return Advanced::Event;
                }
                // The checksum is right and yet it can't be read: the rest of the frame is lost.
                self.left = 0;
                self.damaged = true;
            }
            if self.ended {
                return Advanced::End;
            }
            match self.next_frame() {
                Next::Frame(head) => {
                    let gap = head.first_seq - self.seq;
                    let time = MonoNs(head.first_time);
                    self.left = head.events;
                    if self.damaged || gap > 0 {
                        self.event = self.lost(gap, time);
                        self.seq = head.first_seq;
                        self.time = time;
                        return Advanced::Event;
                    }
                    self.time = time;
                }
                Next::Damage => self.damaged = true,
                Next::Read => {}
                Next::More => return Advanced::More,
                Next::End => {
                    self.ended = true;
                    let missing = self.at_least.saturating_sub(self.seq);
                    if self.damaged || missing > 0 || self.trailer.is_none() {
                        self.event = self.lost(missing, self.time);
                        return Advanced::Event;
                    }
                }
            }
        }
    }

    /// Comes to the next event of the open frame.
    fn next_of_frame(&mut self) -> Option<()> {
        let bytes = &self.raw[self.at..];
        let mut reader = postcard::Deserializer::from_bytes(bytes);
        let since = i64::deserialize(&mut reader).ok()?;
        self.event.kind = EventKind::deserialize(&mut reader).ok()?;
        let rest = reader.finalize().ok()?;
        self.at = self.raw.len() - rest.len();
        self.left -= 1;
        self.seq = self.seq.saturating_add(1);
        if self.left == 0 && !rest.is_empty() {
            self.damaged = true;
        }
        self.time = MonoNs(self.time.0.wrapping_add(since.cast_unsigned()));
        self.event.time = self.time;
        Some(())
    }

    fn lost(&mut self, count: u64, time: MonoNs) -> Event {
        self.damaged = false;
        let kind = EventKind::Lost {
            source: LossSource::TraceFile,
            count: count.max(1),
            since: self.time,
        };
        Event { time, kind }
    }

    /// Moves on to the next whole frame and opens it.
    fn next_frame(&mut self) -> Next {
        if self.skip_to_marker() {
            return Next::Damage;
        }
        let input = &self.input[self.used..];
        if input.is_empty() && self.closed {
            return Next::End;
        }
        let Some(head) = input.first_chunk() else { return self.short() };
        let Some(head) = Head::decode(head) else {
            self.used += 1;
            return Next::Damage;
        };
        self.at_least = self.at_least.max(head.first_seq.saturating_add(head.events.into()));
        let Some(body) = input.get(Head::SIZE..Head::SIZE + head.length as usize) else {
            return self.short();
        };
        if !is_right(crc32fast::hash(body), head.crc) {
            // The head's length can be trusted, its checksum was right. What can't be is that the body is
            // as long: bytes may be missing from it. So the next frame is searched from here on.
            self.used += Head::SIZE;
            return Next::Damage;
        }
        let end = self.used + Head::SIZE + head.length as usize;
        let next = if head.marker == FRAME { self.open(&head) } else { self.read_trailer(&head) };
        self.used = end;
        next
    }

    fn open(&mut self, head: &Head) -> Next {
        // A frame once more, or one of another trace: its events have had their turn.
        if head.first_seq < self.seq || self.trailer.is_some() {
            return Next::Damage;
        }
        let start = self.used + Head::SIZE;
        let body = &self.input[start..start + head.length as usize];
        self.raw.clear();
        self.raw.reserve(head.raw_length as usize);
        self.at = 0;
        match self.decompressor.decompress_to_buffer(body, &mut self.raw) {
            Ok(length) if length == head.raw_length as usize => Next::Frame(*head),
            _ => Next::Damage,
        }
    }

    fn read_trailer(&mut self, head: &Head) -> Next {
        let start = self.used + Head::SIZE;
        let body = &self.input[start..start + head.length as usize];
        match serde_json::from_slice(body) {
            Ok(trailer) if self.trailer.is_none() => {
                self.trailer = Some(trailer);
                // Reads on: what follows the trailer does not belong there.
                Next::Read
            }
            _ => Next::Damage,
        }
    }

    /// There are too few bytes for what should be there.
    fn short(&mut self) -> Next {
        if !self.closed {
            return Next::More;
        }
        // A frame may yet be whole behind a head whose body is cut.
        self.used += 1;
        Next::Damage
    }

    /// Passes over bytes that can't begin a frame. True if there were any.
    fn skip_to_marker(&mut self) -> bool {
        let input = &self.input[self.used..];
        let skip = input.iter().position(|byte| *byte == FRAME[0]).unwrap_or(input.len());
        self.used += skip;
        skip > 0
    }
}

/// What [`Decoder::next_frame`] met.
enum Next {
    Frame(Head),
    /// Bytes that make no sense here; they were passed over.
    Damage,
    /// The trailer.
    Read,
    More,
    End,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("seq", &self.seq)
            .field("time", &self.time)
            .field("waiting", &(self.input.len() - self.used))
            .field("damaged", &self.damaged)
            .finish_non_exhaustive()
    }
}
