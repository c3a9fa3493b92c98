//! Captures, as tcpdump and Wireshark write them: pcap (draft-ietf-opsawg-pcap) and pcapng
//! (draft-ietf-opsawg-pcapng), to the packets that tell of connects.
//!
//! Whatever the bytes are, decoding ends. What is no packet for us is counted by its reason. Neither format has
//! checksums, so damage shows only where a length or a time can't be; then the next place is looked for from
//! which the file makes sense again, and [`Step::Lost`] stands for what lies between.
//!
//! The readers of crates.io end at the first damage, and want whole TCP headers, which a short capture and the
//! quote in an ICMP error don't have. So both are read here.

mod blocks;
mod bytes;
mod counts;
mod ip;
mod link;
mod records;
#[cfg(test)]
mod tests;

use std::fmt;

use blocks::Sections;
pub use counts::Counts;
use counts::PassedOver;
use link::Link;
use records::Records;

use crate::model::{Captured, IfIndex, WallNs, Way};

/// No record and no block is larger than this: what a reader must keep in memory. tcpdump's largest packet is
/// 256 KiB (`MAXIMUM_SNAPLEN` of libpcap).
const LIMIT: usize = 1024 * 1024;

/// Why a capture can't be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// There is nothing.
    #[error("is empty")]
    Empty,
    /// It begins otherwise.
    #[error("is not a capture")]
    NotACapture,
    /// It ends before its first packet could begin.
    #[error("is a capture that was cut off within its header")]
    Cut,
    /// It has packets, and all of them are of a link type that is not read here.
    #[error(
        "is a capture of link type {0}; capture on Ethernet, or on `any` (Linux cooked), or raw IP"
    )]
    LinkType(LinkType),
}

/// A link type's number (<https://www.tcpdump.org/linktypes.html>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkType(pub u16);

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            9 => "PPP",
            105 => "IEEE 802.11",
            127 => "IEEE 802.11 with radiotap",
            189 | 220 => "USB",
            147..=162 => "for private use",
            187 | 201 => "Bluetooth",
            239 => "netfilter log",
            253 => "netlink",
            _ => return write!(f, "{}", self.0),
        };
        write!(f, "{} ({name})", self.0)
    }
}

/// What [`Decoder::step`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The next packet.
    Packet(Captured),
    /// Packets are missing here.
    Lost(Loss),
    /// No whole packet is left: feed more bytes, or close.
    More,
    /// There is nothing more.
    End,
}

/// Why packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// This many bytes make no sense.
    Damaged {
        /// How many were passed over.
        bytes: u64,
    },
    /// The file ends within a packet.
    CutShort,
    /// Its maker says that it could not keep up with this many packets.
    Dropped {
        /// How many, since the last word of it.
        packets: u64,
    },
}

/// Whether a file that begins with these bytes is a capture of either format.
pub fn is_capture(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|magic| records::magic(*magic).is_some())
        || blocks::is_start(bytes)
}

/// A packet with the link that it was captured on, not yet looked into.
#[derive(Clone, Copy, Debug)]
struct Frame<'a> {
    time: WallNs,
    link: Result<Link, LinkType>,
    ifindex: IfIndex,
    way: Option<Way>,
    data: &'a [u8],
}

/// What a format finds at the beginning of bytes, and how many of them that is.
#[derive(Debug)]
enum Found<'a> {
    Frame(Frame<'a>, usize),
    /// Nothing of ours.
    Skip(usize),
    /// A packet that can't be looked into, and why.
    Stray(PassedOver, usize),
    /// The maker's count of packets that it lost.
    Dropped(u64, usize),
    /// More bytes are needed.
    More,
    /// These bytes are no record.
    Damage,
}

/// The two formats.
#[derive(Debug)]
enum Form {
    Records(Records),
    Sections(Sections),
}

/// Decodes a capture from bytes as they come. Keeps one packet in memory.
#[derive(Debug)]
pub struct Decoder {
    input: Vec<u8>,
    /// How much of `input` has been used.
    used: usize,
    closed: bool,
    form: Option<Form>,
    /// Bytes that were passed over since something last made sense.
    lost_bytes: u64,
    /// Whether they begin with what may be a packet that the file's end cut off.
    torn: bool,
    counts: Counts,
    /// The first link type that is not read here.
    strange: Option<LinkType>,
    ended: bool,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// For a file from its beginning.
    pub fn new() -> Decoder {
        Decoder {
            input: Vec::new(),
            used: 0,
            closed: false,
            form: None,
            lost_bytes: 0,
            torn: false,
            counts: Counts::default(),
            strange: None,
            ended: false,
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

    /// What became of the packets so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next packet.
    ///
    /// # Errors
    /// If this is no capture, or has nothing but packets that are not read here. What is damaged inside is no
    /// error.
    pub fn step(&mut self) -> Result<Step, PcapError> {
        loop {
            if self.ended {
                return Ok(Step::End);
            }
            let Some(form) = &mut self.form else {
                match self.begin() {
                    Ok(true) => continue,
                    Ok(false) => return Ok(Step::More),
                    Err(error) => {
                        self.ended = true;
                        return Err(error);
                    }
                }
            };
            let rest = &self.input[self.used..];
            let searching = self.lost_bytes > 0;
            let found = match form {
                Form::Records(records) => records.next(rest, searching, self.closed),
                Form::Sections(sections) => sections.next(rest, searching),
            };
            if searching && !matches!(found, Found::Damage | Found::More) {
                return Ok(Step::Lost(self.damage_ends()));
            }
            match found {
                Found::Frame(frame, used) => {
                    self.used += used;
                    self.counts.packets += 1;
                    let packet = link::decode(&frame);
                    if let Err(link) = frame.link {
                        self.strange.get_or_insert(link);
                    }
                    match packet {
                        Ok(packet) => {
                            self.counts.taken += 1;
                            return Ok(Step::Packet(packet));
                        }
                        Err(reason) => self.counts.pass_over(reason),
                    }
                }
                Found::Skip(used) => self.used += used,
                Found::Stray(reason, used) => {
                    self.used += used;
                    self.counts.packets += 1;
                    self.counts.pass_over(reason);
                }
                Found::Dropped(packets, used) => {
                    self.used += used;
                    self.counts.dropped += packets;
                    return Ok(Step::Lost(Loss::Dropped { packets }));
                }
                Found::Damage => self.skip_byte(),
                Found::More if !self.closed => return Ok(Step::More),
                Found::More if self.used == self.input.len() => return self.end(),
                Found::More => {
                    // Cut off here, unless something that makes sense comes behind it: then the length is wrong.
                    self.torn |= !searching;
                    self.skip_byte();
                }
            }
        }
    }

    /// Finds out the format. False: more bytes are needed.
    fn begin(&mut self) -> Result<bool, PcapError> {
        let rest = &self.input[self.used..];
        let short = |closed: bool| match (closed, rest.is_empty()) {
            (false, _) => Ok(false),
            (true, true) => Err(PcapError::Empty),
            (true, false) => Err(PcapError::Cut),
        };
        let Some(magic) = rest.first_chunk::<4>() else {
            return if rest.is_empty() || !self.closed {
                short(self.closed)
            } else {
                Err(PcapError::NotACapture)
            };
        };
        if let Some(magic) = records::magic(*magic) {
            let Some(header) = rest.first_chunk() else { return short(self.closed) };
            self.form = Some(Form::Records(Records::new(magic, header)));
            self.used += records::HEADER;
        } else if *magic == blocks::SECTION.to_be_bytes() {
            if rest.len() < blocks::START {
                return short(self.closed);
            }
            if !blocks::is_start(rest) {
                return Err(PcapError::NotACapture);
            }
            self.form = Some(Form::Sections(Sections::default()));
        } else {
            return Err(PcapError::NotACapture);
        }
        Ok(true)
    }

    fn skip_byte(&mut self) {
        self.used += 1;
        self.lost_bytes += 1;
    }

    fn damage_ends(&mut self) -> Loss {
        let bytes = std::mem::take(&mut self.lost_bytes);
        self.torn = false;
        self.counts.damaged_places += 1;
        self.counts.damaged_bytes += bytes;
        Loss::Damaged { bytes }
    }

    /// The bytes are at their end.
    fn end(&mut self) -> Result<Step, PcapError> {
        if self.torn {
            self.torn = false;
            self.lost_bytes = 0;
            self.counts.cut_short = true;
            return Ok(Step::Lost(Loss::CutShort));
        }
        if self.lost_bytes > 0 {
            return Ok(Step::Lost(self.damage_ends()));
        }
        self.ended = true;
        let counts = &self.counts;
        match self.strange {
            Some(link) if counts.packets == counts.unknown_link => Err(PcapError::LinkType(link)),
            _ => Ok(Step::End),
        }
    }
}
