//! What must hold of every parser, whatever bytes it is given: it ends, it does not depend on the pieces in which
//! the bytes come, and what it takes from them can be said again. A target panics where that is not so.
//!
//! Run by `cargo xtask fuzz` with libFuzzer for minutes, and by a test of tracer for seconds.

use std::fmt::Debug;

use tracer::codec::{Step, rebuild};
use tracer::codec::{conntrack, json_lines, pcap, requests, ring, stamp, trace, watch};
use tracer::commands::units;
use tracer::model::{EventKind, LossSource, MonoNs, Seq};

/// A target: its name, which is that of its corpus folder too, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 8] = [
    ("ring", ring_record),
    ("trace", trace_file),
    ("capture", capture),
    ("conntrack", conntrack_output),
    ("watch", watch_output),
    ("requests", request_log),
    ("stamp", time_stamp),
    ("units", command_line),
];

/// No reader may have more to say than this for each byte, and a little.
const SAID_PER_BYTE: usize = 4;

/// Everything that a reader says of these bytes, given whole, and given in pieces: it must be the same.
fn both_ways<T: Debug>(bytes: &[u8], read: impl Fn(&mut dyn Iterator<Item = &[u8]>) -> T) {
    let whole = format!("{:?}", read(&mut std::iter::once(bytes)));
    // Pieces whose length the bytes themselves decide, so that a fuzzer can choose it.
    let length = bytes.first().map_or(1, |first| usize::from(*first) % 61 + 1);
    let pieces = format!("{:?}", read(&mut bytes.chunks(length)));
    assert_eq!(whole, pieces, "in pieces of {length}");
}

/// Takes what `step` has, until it is at its end or wants more.
fn drain<T>(said: &mut Vec<T>, at_most: usize, mut step: impl FnMut() -> Step<T>) -> bool {
    loop {
        assert!(said.len() <= at_most, "it does not end");
        match step() {
            Step::Item(item) => said.push(item),
            Step::More => return false,
            Step::End => return true,
        }
    }
}

fn at_most(bytes: &[u8]) -> usize {
    bytes.len() * SAID_PER_BYTE + 64
}

/// A record of the ring buffer.
pub fn ring_record(bytes: &[u8]) {
    for hz in [None, Some(0), Some(250), Some(u32::MAX)] {
        let Ok(event) = ring::decode(bytes, ring::Kernel { hz }) else { continue };
        let mut line = Vec::new();
        json_lines::event(&header(), Seq(0), &event, &mut line);
        if let EventKind::Packet(packet) = &event.kind {
            assert!(!rebuild::packet(packet).is_empty());
        }
    }
}

fn header() -> tracer::model::TraceHeader {
    use tracer::model::{ClockAnchor, Origin, TraceHeader, WallNs};
    TraceHeader {
        tracer: String::new(),
        origin: Origin::Record { command: String::new() },
        kernel: String::new(),
        node: String::new(),
        hz: None,
        began: MonoNs(0),
        anchor: ClockAnchor { mono: MonoNs(0), wall: WallNs(0), error_ns: 0 },
        hooks: Vec::new(),
        netns: Vec::new(),
        sysctls: Vec::new(),
        services: Vec::new(),
        drop_reasons: Default::default(),
        notes: Vec::new(),
    }
}

/// A trace file, its preamble included.
pub fn trace_file(bytes: &[u8]) {
    let Ok(preamble) = trace::Preamble::decode(bytes) else {
        // Its frames may still be whole.
        return frames(bytes);
    };
    let rest = bytes.get(trace::Preamble::SIZE..).unwrap_or_default();
    if let Some(header) = rest.get(..preamble.header_len()) {
        if let Ok(header) = preamble.header(header) {
            json_lines::header(&header, &mut Vec::new());
            assert!(trace::is_trace(&trace::encode_header(&header)));
        }
        frames(&rest[preamble.header_len()..]);
    }
}

fn frames(bytes: &[u8]) {
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut decoder = trace::Decoder::new(MonoNs(0));
        let mut events = Vec::new();
        let mut take = |decoder: &mut trace::Decoder| {
            while let trace::Step::Event(event) = decoder.step() {
                events.push(event);
            }
        };
        for piece in pieces {
            decoder.feed(piece);
            take(&mut decoder);
        }
        decoder.close();
        take(&mut decoder);
        (events, decoder.trailer().cloned())
    };
    both_ways(bytes, read);
    let (events, _) = read(&mut std::iter::once(bytes));

    // What was read can be written, and is read again as the same.
    let mut encoder = trace::FrameEncoder::new();
    let mut again = Vec::new();
    let mut kept = Vec::new();
    for event in &events {
        if encoder.push(event).is_ok_and(|is_full| is_full) {
            encoder.take_frame(&mut again);
        }
        kept.push(event.clone());
    }
    encoder.finish(&mut again);
    let (same, trailer) = read(&mut std::iter::once(&again[..]));
    assert_eq!(kept, same);
    assert!(trailer.is_some());

    // Cut anywhere, what is left is a beginning of it, and then the loss.
    let cut = again.len() / 2 + bytes.len() % 7;
    let (fewer, trailer) = read(&mut std::iter::once(&again[..cut.min(again.len() - 1)]));
    let is_loss =
        |kind: &EventKind| matches!(kind, EventKind::Lost { source: LossSource::TraceFile, .. });
    let (last, beginning) = fewer.split_last().expect("a loss at least");
    assert!(trailer.is_none() && is_loss(&last.kind), "{last:?}");
    assert!(kept.starts_with(beginning));
}

/// A capture: pcap or pcapng.
pub fn capture(bytes: &[u8]) {
    both_ways(bytes, |pieces| {
        let mut decoder = pcap::Decoder::new();
        let mut said = Vec::new();
        let mut take = |decoder: &mut pcap::Decoder| loop {
            assert!(said.len() <= at_most(bytes), "it does not end");
            match decoder.step() {
                Ok(pcap::Step::More | pcap::Step::End) => return None,
                Ok(step) => said.push(step),
                Err(error) => return Some(error.to_string()),
            }
        };
        let mut error = None;
        for piece in pieces {
            decoder.feed(piece);
            error = error.or(take(&mut decoder));
        }
        decoder.close();
        error = error.or(take(&mut decoder));
        (said, error, format!("{:?}", decoder.counts()))
    });
}

/// What a reader of text says, given its bytes whole and in pieces; it must come to its end once it is closed.
macro_rules! text {
    ($bytes:expr, $reader:expr) => {
        both_ways($bytes, |pieces| {
            let mut reader = $reader;
            let mut said = Vec::new();
            for piece in pieces {
                reader.feed(piece);
                drain(&mut said, at_most($bytes), || reader.step());
            }
            reader.close();
            assert!(drain(&mut said, at_most($bytes), || reader.step()), "it is not at its end");
            (said, format!("{:?}", reader.counts()))
        })
    };
}

/// What `conntrack -E` and `-L` print, as lines or as XML.
pub fn conntrack_output(bytes: &[u8]) {
    let Some(form) = conntrack::form_of(bytes) else { return };
    text!(bytes, conntrack::Reader::new(form));
}

/// What `kubectl get -o json` prints, watching or not.
pub fn watch_output(bytes: &[u8]) {
    text!(bytes, watch::Reader::default());
}

/// A log of requests, of any client.
pub fn request_log(bytes: &[u8]) {
    let columns = requests::Columns::default();
    let Some(form) = requests::form_of(bytes, &columns) else { return };
    text!(bytes, requests::Reader::new(form, columns.clone()));
}

/// A point in time, as text.
pub fn time_stamp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for stamp in [stamp::rfc3339(&text), stamp::unix(&text)].into_iter().flatten() {
        assert!(stamp.end().0 >= stamp.at.0);
    }
}

/// A value on the command line.
pub fn command_line(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(range) = units::durations(&text) {
        assert!(range.start() <= range.end());
    }
    let _ = (units::positive(&text), units::moment(&text), units::endpoint(&text));
    if let Ok(size) = units::ring(&text) {
        assert!((1..=1 << 30).contains(&size));
    }
}
