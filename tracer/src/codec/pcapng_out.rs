//! pcapng, written (draft-ietf-opsawg-pcapng): one section, interfaces of raw IP, packets with comments.
//! Each function appends one block.
//!
//! Own code: it is a few length-prefixed fields, and the one writer of crates.io with options has no stable
//! release that is kept.

use crate::model::WallNs;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

/// The section's byte order is little-endian, by this number.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// LINKTYPE_RAW: the packet begins with its IP header, of version 4 or 6.
const RAW: u16 = 101;

const OPT_END: u16 = 0;
const OPT_COMMENT: u16 = 1;
const SHB_HARDWARE: u16 = 2;
const SHB_OS: u16 = 3;
const SHB_USERAPPL: u16 = 4;
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;

/// An option's longest text. The format allows 65,535 bytes; nobody reads as much.
const LONGEST_TEXT: usize = 8 * 1024;

/// What a file says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section<'a> {
    /// The machine that was captured on.
    pub hardware: &'a str,
    /// Its operating system.
    pub os: &'a str,
    /// The program that wrote the file.
    pub application: &'a str,
    /// Comments, one after another.
    pub comments: &'a [String],
}

/// An interface. They are numbered from 0 in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub description: &'a str,
    /// What must be known of its packets.
    pub comment: &'a str,
}

/// Which way a packet passed its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Not known, or neither.
    Unknown,
    /// It came in.
    In,
    /// It goes out.
    Out,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The number of its interface.
    pub interface: u32,
    /// When. The format has no time before 1970: such a one becomes 0.
    pub time: WallNs,
    /// Which way it passed the interface.
    pub way: Way,
    /// Its bytes, from the IP header on.
    pub bytes: &'a [u8],
    /// What is known of it besides.
    pub comment: &'a str,
}

/// Appends the block that begins a file.
pub fn section(section: &Section<'_>, out: &mut Vec<u8>) {
    block(SECTION, out, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        // Version 1.0, and a length that is not known: the section is written as it comes.
        out.extend_from_slice(&1u16.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&(-1i64).to_le_bytes());
        for comment in section.comments {
            text(OPT_COMMENT, comment, out);
        }
        text(SHB_HARDWARE, section.hardware, out);
        text(SHB_OS, section.os, out);
        text(SHB_USERAPPL, section.application, out);
        option(OPT_END, &[], out);
    });
}

/// Appends an interface, whose packets have times in nanoseconds.
pub fn interface(interface: &Interface<'_>, out: &mut Vec<u8>) {
    block(INTERFACE, out, |out| {
        out.extend_from_slice(&RAW.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        // No limit on a packet's length.
        out.extend_from_slice(&0u32.to_le_bytes());
        text(IF_NAME, interface.name, out);
        text(IF_DESCRIPTION, interface.description, out);
        text(OPT_COMMENT, interface.comment, out);
        option(IF_TSRESOL, &[9], out);
        option(OPT_END, &[], out);
    });
}

/// Appends a packet.
pub fn packet(packet: &Packet<'_>, out: &mut Vec<u8>) {
    block(ENHANCED_PACKET, out, |out| {
        let time = u64::try_from(packet.time.0).unwrap_or(0);
        let length = u32::try_from(packet.bytes.len()).expect("an IP packet has at most 64 KiB");
        out.extend_from_slice(&packet.interface.to_le_bytes());
        out.extend_from_slice(&((time >> 32) as u32).to_le_bytes());
        out.extend_from_slice(&(time as u32).to_le_bytes());
        // As captured, and as it was.
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&length.to_le_bytes());
        padded(packet.bytes, out);
        text(OPT_COMMENT, packet.comment, out);
        let way: u32 = match packet.way {
            Way::Unknown => 0,
            Way::In => 1,
            Way::Out => 2,
        };
        option(EPB_FLAGS, &way.to_le_bytes(), out);
        option(OPT_END, &[], out);
    });
}

/// A block: its type and, before and after what is in it, its whole length.
fn block(kind: u32, out: &mut Vec<u8>, inside: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    inside(out);
    let length = u32::try_from(out.len() + 4 - start).expect("a block is far below 4 GiB");
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}

/// An option with a text; none if the text is empty.
fn text(code: u16, text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    option(code, &text.as_bytes()[..end], out);
}

fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(value.len()).expect("texts are cut to LONGEST_TEXT");
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    padded(value, out);
}

/// Bytes, filled up to a multiple of 4.
fn padded(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// Each block as words of 4 bytes.
    fn words(bytes: &[u8]) -> String {
        let words: Vec<String> = bytes
            .chunks(4)
            .map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        words.join(" ")
    }

    #[test]
    fn a_packet_has_its_length_at_both_ends_its_time_in_two_halves_and_is_filled_up() {
        let mut out = Vec::new();
        let time = WallNs(0x1234_5678_9abc_def0);
        packet(
            &Packet { interface: 3, time, way: Way::Out, bytes: b"packet", comment: "why" },
            &mut out,
        );
        expect!["06000000 3c000000 03000000 78563412 f0debc9a 06000000 06000000 7061636b 65740000 01000300 77687900 02000400 02000000 00000000 3c000000"]
        .assert_eq(&words(&out));
    }

    #[test]
    fn an_interface_has_raw_ip_and_nanoseconds() {
        let mut out = Vec::new();
        interface(&Interface { name: "eth0", description: "", comment: "" }, &mut out);
        expect!["01000000 28000000 65000000 00000000 02000400 65746830 09000100 09000000 00000000 28000000"]
            .assert_eq(&words(&out));
    }

    #[test]
    fn a_section_is_of_unknown_length_and_can_have_many_comments() {
        let mut out = Vec::new();
        let comments = ["a".to_owned(), "b".to_owned()];
        section(&Section { comments: &comments, ..Section::default() }, &mut out);
        expect!["0a0d0d0a 30000000 4d3c2b1a 01000000 ffffffff ffffffff 01000100 61000000 01000100 62000000 00000000 30000000"]
        .assert_eq(&words(&out));
    }

    #[test]
    fn a_text_too_long_is_cut_between_two_characters() {
        let mut out = Vec::new();
        let comment = "ä".repeat(LONGEST_TEXT);
        interface(&Interface { name: "a", description: "b", comment: &comment[..] }, &mut out);
        interface(
            &Interface { name: "a", description: "b", comment: &format!("x{comment}") },
            &mut out,
        );
        assert_eq!(out.len() % 4, 0);
        assert!(out.windows(4).any(|window| window == [1, 0, 0xff, 0x1f]), "8191 bytes");
    }

    #[test]
    fn a_time_before_1970_is_the_first_that_the_format_has() {
        let mut out = Vec::new();
        let bytes = [0x45; 20];
        packet(
            &Packet { interface: 0, time: WallNs(-1), way: Way::In, bytes: &bytes, comment: "" },
            &mut out,
        );
        assert_eq!(out[12..20], [0; 8]);
    }
}
