use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::codec::pcap::Loss;
use crate::codec::trace::samples::{header, realistic};
use crate::files::{CaptureReader, Existing, Piece, TraceReader, TraceWriter};
use crate::model::{EventKind, LossSource};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    // As the command does, with a checksum.
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A capture of SYNs over raw IP, with times and addresses that don't pack too well.
fn capture(packets: u32) -> Vec<u8> {
    let mut bytes =
        vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 96, 0, 0, 0, 101];
    bytes.resize(24, 0);
    for number in 0..packets {
        let noise = number.wrapping_mul(2_654_435_761);
        bytes.extend((1_796_000_000 + number / 1000).to_le_bytes());
        bytes.extend((noise % 1_000_000).to_le_bytes());
        bytes.extend([40, 0, 0, 0, 40, 0, 0, 0]);
        bytes.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(noise.to_be_bytes());
        bytes.extend(noise.rotate_left(7).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// Packets and losses of a capture.
fn pieces(bytes: &[u8]) -> (u64, Vec<Loss>) {
    let (_folder, path) = file(bytes);
    let mut packets = 0;
    let mut losses = Vec::new();
    for piece in CaptureReader::new(Input::open(&path).unwrap()) {
        match piece.unwrap() {
            Piece::Packet(_) => packets += 1,
            Piece::Lost(loss) => losses.push(loss),
        }
    }
    (packets, losses)
}

fn kind(bytes: &[u8]) -> Option<Kind> {
    let (_folder, path) = file(bytes);
    Input::open(&path).unwrap().kind()
}

#[test]
fn a_file_is_known_by_its_content_packed_or_not() {
    let capture = capture(3);
    assert_eq!(kind(&capture), Some(Kind::Capture));
    assert_eq!(kind(&gzip(&capture)), Some(Kind::Capture));
    assert_eq!(kind(&zst(&capture)), Some(Kind::Capture));
    assert_eq!(kind(b"\x89tracer\n and more"), Some(Kind::Trace));
    assert_eq!(kind(b"\x7fELF"), None);
    assert_eq!(kind(&gzip(b"\x7fELF")), None);
    assert_eq!(kind(b""), None);
}

#[test]
fn what_is_nothing_known_is_refused_with_one_line() {
    let says = |bytes: &[u8]| {
        let (_folder, path) = file(bytes);
        let text = Input::open(&path).unwrap().unknown().to_string();
        text.strip_prefix(path.to_str().unwrap()).unwrap().to_owned()
    };
    assert_eq!(says(b""), " is empty");
    assert_eq!(says(&gzip(b"")), " is empty");
    assert_eq!(says(b"\x7fELF"), " is of no kind that can be replayed");
}

#[test]
fn a_packed_capture_reads_as_the_plain_one() {
    let plain = capture(20_000);
    for bytes in [
        plain.clone(),
        gzip(&plain),
        zst(&plain),
        [gzip(&plain[..999]), gzip(&plain[999..])].concat(),
    ] {
        assert_eq!(pieces(&bytes), (20_000, vec![]));
    }
}

#[test]
fn a_packed_capture_that_is_cut_or_damaged_is_read_up_to_there() {
    let plain = capture(20_000);
    for packed in [gzip(&plain), zst(&plain)] {
        let (packets, losses) = pieces(&packed[..packed.len() * 2 / 3]);
        assert!((1000..20_000).contains(&packets), "{packets}");
        assert_eq!(losses, [Loss::CutShort]);
        let mut damaged = packed.clone();
        let middle = damaged.len() / 2;
        damaged[middle..middle + 64].fill(0xff);
        let (packets, losses) = pieces(&damaged);
        // A checksum over all of it tells only at the end.
        assert!(packets <= 20_000 && !losses.is_empty(), "{packets} {losses:?}");
    }
}

#[test]
fn a_packed_trace_reads_as_the_plain_one_and_its_cut_is_a_loss() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.trace");
    let events = realistic(1, 2_000, std::time::Duration::from_micros(500));
    let mut writer = TraceWriter::create(&path, &header(), Existing::Keep).unwrap();
    events.iter().for_each(|event| writer.append(event).unwrap());
    writer.finish().unwrap();
    let packed = gzip(&fs::read(&path).unwrap());
    let read = |bytes: &[u8]| {
        let (_folder, path) = file(bytes);
        TraceReader::open(&path).unwrap().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(read(&packed), events);
    let cut = read(&packed[..packed.len() - 100]);
    let last = cut.last().unwrap();
    assert!(matches!(last.kind, EventKind::Lost { source: LossSource::TraceFile, .. }), "{last:?}");
}

#[test]
fn reading_tells_how_far_it_has_come() {
    let (_folder, path) = file(&zst(&capture(50_000)));
    let mut input = Input::open(&path).unwrap();
    let length = input.length();
    assert!(input.position() < length);
    input.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(input.position(), length);
}
