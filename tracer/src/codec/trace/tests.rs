use std::time::Duration;

use proptest::prelude::*;

use super::samples::{any_event, header, realistic};
use super::*;
use crate::model::{Event, EventKind, MonoNs, TraceHeader};

/// The trace of these events, each frame with this many.
fn encode(events: &[Event], frame: usize) -> Vec<u8> {
    let mut bytes = encode_header(&header());
    let mut frames = FrameEncoder::new();
    for (number, event) in events.iter().enumerate() {
        if frames.push(event).unwrap() || (number + 1) % frame == 0 {
            frames.take_frame(&mut bytes);
        }
    }
    frames.finish(&mut bytes);
    bytes
}

/// Reads a trace as a file reader does, in pieces of `chunk` bytes.
fn decode_in(bytes: &[u8], chunk: usize) -> Result<(TraceHeader, Vec<Event>), HeaderError> {
    let fixed = &bytes[..bytes.len().min(Preamble::SIZE)];
    let preamble = Preamble::decode(fixed)?;
    let header = preamble.header(&bytes[Preamble::SIZE..])?;
    let mut decoder = Decoder::new(header.began);
    let mut chunks = bytes[Preamble::SIZE + preamble.header_len()..].chunks(chunk);
    let mut events = Vec::new();
    loop {
        match decoder.step() {
            Step::Event(event) => events.push(event),
            Step::End => return Ok((header, events)),
            Step::More => match chunks.next() {
                Some(chunk) => decoder.feed(chunk),
                None => decoder.close(),
            },
        }
    }
}

fn decode(bytes: &[u8]) -> Vec<Event> {
    decode_in(bytes, 4096).expect("the preamble is whole").1
}

fn is_damage(event: &Event) -> bool {
    matches!(event.kind, EventKind::Lost { source: LossSource::TraceFile, .. })
}

/// The counts of the losses that the reader found.
fn damage(events: &[Event]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::Lost { source: LossSource::TraceFile, count, .. } => Some(count),
            _ => None,
        })
        .collect()
}

fn sample() -> Vec<Event> {
    realistic(1, 40, Duration::from_millis(6))
}

/// Where each frame and the trailer begin.
fn heads(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() - Head::SIZE)
        .filter(|at| Head::decode(bytes[*at..].first_chunk().unwrap()).is_some())
        .collect()
}

#[test]
fn an_undamaged_trace_reads_back_without_a_word_of_loss() {
    let events = sample();
    let bytes = encode(&events, 50);
    let (read_header, read) = decode_in(&bytes, 4096).unwrap();
    assert_eq!(read_header, header());
    assert_eq!(read, events);
}

#[test]
fn a_trace_without_events_is_whole() {
    assert_eq!(decode(&encode(&[], 1)), []);
}

#[test]
fn a_damaged_frame_costs_its_own_events_and_says_how_many() {
    let events = sample();
    let mut bytes = encode(&events, 50);
    let second = heads(&bytes)[1];
    bytes[second + Head::SIZE + 10] ^= 0x10;
    let read = decode(&bytes);
    assert_eq!(read[..50], events[..50]);
    assert_eq!(
        read[50],
        Event {
            time: events[100].time,
            kind: EventKind::Lost {
                source: LossSource::TraceFile,
                count: 50,
                since: events[49].time
            }
        }
    );
    assert_eq!(read[51..], events[100..]);
}

#[test]
fn a_damaged_head_costs_its_frame_only() {
    let events = sample();
    let mut bytes = encode(&events, 50);
    let second = heads(&bytes)[1];
    bytes[second + 4] ^= 0xff;
    let read = decode(&bytes);
    assert_eq!(damage(&read), [50]);
    assert_eq!(read[51..], events[100..]);
}

#[test]
fn bytes_missing_from_a_frame_do_not_cost_the_next() {
    let events = sample();
    let mut bytes = encode(&events, 50);
    let second = heads(&bytes)[1];
    bytes.drain(second + 100..second + 117);
    let read = decode(&bytes);
    assert_eq!(damage(&read), [50]);
    assert_eq!(read[51..], events[100..]);
}

#[test]
fn a_torn_frame_is_counted_by_its_head() {
    let events = sample();
    let bytes = encode(&events, 50);
    let third = heads(&bytes)[2];
    let read = decode(&bytes[..third + Head::SIZE + 3]);
    assert_eq!(read[..100], events[..100]);
    assert_eq!(damage(&read[100..]), [50]);
    assert_eq!(read.len(), 101);
}

#[test]
fn a_trace_that_was_not_finished_says_so() {
    let events = sample();
    let bytes = encode(&events, 50);
    let trailer = *heads(&bytes).last().unwrap();
    let read = decode(&bytes[..trailer]);
    assert_eq!(read[..events.len()], events[..]);
    assert_eq!(damage(&read[events.len()..]), [1]);
}

#[test]
fn frames_missing_before_the_trailer_are_counted_by_it() {
    let events = sample();
    let mut bytes = encode(&events, 50);
    let heads = heads(&bytes);
    bytes.drain(heads[3]..*heads.last().unwrap());
    assert_eq!(damage(&decode(&bytes)), [events.len() as u64 - 150]);
}

#[test]
fn bytes_that_do_not_belong_are_damage_wherever_they_stand() {
    let events = sample();
    let bytes = encode(&events, 50);
    let heads = heads(&bytes);
    let frame = bytes[heads[0]..heads[1]].to_vec();
    for (what, at, extra) in [
        ("zeros between frames", heads[1], vec![0; 100]),
        ("a frame once more", heads[2], frame.clone()),
        ("a frame behind the trailer", bytes.len(), frame),
        ("zeros behind the trailer", bytes.len(), vec![0; 10_000]),
        ("a second trailer", bytes.len(), bytes[*heads.last().unwrap()..].to_vec()),
    ] {
        let mut bytes = bytes.clone();
        bytes.splice(at..at, extra);
        let read = decode(&bytes);
        assert_eq!(damage(&read), [1], "{what}");
        assert!(read.iter().filter(|event| !is_damage(event)).eq(&events), "{what}");
    }
}

#[test]
fn the_trailer_sums_what_the_trace_says_was_lost() {
    let lost = |source, count| Event {
        time: MonoNs(5),
        kind: EventKind::Lost { source, count, since: MonoNs(1) },
    };
    let mut frames = FrameEncoder::new();
    for event in
        [lost(LossSource::Codec, 2), lost(LossSource::Cluster, 1), lost(LossSource::Codec, 3)]
    {
        frames.push(&event).unwrap();
    }
    let trailer = frames.finish(&mut Vec::new());
    assert_eq!(trailer.events, 3);
    assert_eq!(
        trailer.losses,
        [
            Loss { source: LossSource::Codec, count: 5 },
            Loss { source: LossSource::Cluster, count: 1 }
        ]
    );
}

#[test]
fn what_is_no_trace_is_told_apart() {
    let says = |bytes: &[u8]| decode_in(bytes, 4096).unwrap_err().to_string();
    let trace = encode(&sample(), 50);
    let mut newer = trace.clone();
    newer[8] = 2;
    let mut damaged = trace.clone();
    damaged[Preamble::SIZE + 5] ^= 1;
    assert_eq!(says(b""), "is empty");
    assert_eq!(says(b"\x7fELF"), "is not a trace of tracer");
    assert_eq!(says(&trace[..12]), "is a trace that was cut off within its header");
    assert_eq!(says(&trace[..40]), "is a trace that was cut off within its header");
    assert_eq!(
        says(&newer),
        "is a trace of format version 2; this tracer reads up to 1: use a newer one"
    );
    assert_eq!(says(&damaged), "is a trace whose header is damaged");
}

/// Two frames at a rate of a few hundred connects a second, as a rollout's trace has them.
#[test]
fn an_event_takes_at_most_40_bytes() {
    let events = realistic(7, 3_000, Duration::from_millis(6));
    let bytes = encode(&events, 1_200);
    let each = bytes.len() as f64 / events.len() as f64;
    println!("{each:.1} bytes an event");
    assert!(each <= 40.0, "{each:.1} bytes an event");
}

#[test]
fn an_event_that_no_frame_holds_is_refused_and_changes_nothing() {
    let mut frames = FrameEncoder::new();
    let event = |length: usize| Event {
        time: MonoNs(1),
        kind: EventKind::SysctlSet {
            netns: crate::model::NetnsId(1),
            name: "x".repeat(length),
            value: String::new(),
        },
    };
    frames.push(&event(1)).unwrap();
    assert!(frames.push(&event(LIMIT)).is_err());
    frames.push(&event(2)).unwrap();
    let mut bytes = encode_header(&header());
    frames.finish(&mut bytes);
    assert_eq!(decode(&bytes), [event(1), event(2)]);
}

/// Every cut of a small trace: what stands before it is read, and the loss is named.
#[test]
fn a_trace_cut_anywhere_reads_up_to_the_cut() {
    let events = realistic(2, 6, Duration::from_millis(6));
    let bytes = encode(&events, 7);
    let heads = heads(&bytes);
    assert_eq!(events.len() % 7, 0, "all frames have 7 events");
    for cut in 0..bytes.len() {
        match decode_in(&bytes[..cut], 64) {
            Err(HeaderError::Empty) => assert_eq!(cut, 0),
            Err(HeaderError::Cut) => assert!(cut < heads[0]),
            Err(other) => panic!("cut at {cut}: {other}"),
            Ok((_, read)) => {
                let whole = heads[1..].iter().filter(|end| **end <= cut).count() * 7;
                let (lost, before) = read.split_last().expect("there is at least the loss");
                assert!(is_damage(lost), "cut at {cut}");
                assert_eq!(before, &events[..whole], "cut at {cut}");
            }
        }
    }
}

/// Every single bit of a small trace, flipped: an error or a loss, never silence, and no event that was not there.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let events = realistic(3, 3, Duration::from_millis(6));
    let bytes = encode(&events, 7);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok((_, read)) = decode_in(&flipped, 4096) {
            assert!(read.iter().any(is_damage), "bit {bit}");
            assert!(
                read.iter().filter(|event| !is_damage(event)).all(|event| events.contains(event)),
                "bit {bit}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_events_read_back_the_same(
        events in proptest::collection::vec(any_event(), 0..60),
        frame in 1..20_usize,
        chunk in 1..3_000_usize,
    ) {
        let bytes = encode(&events, frame);
        prop_assert_eq!(decode_in(&bytes, chunk).unwrap(), (header(), events));
    }

    /// Bytes cut out, put in or changed at any place behind the header.
    #[test]
    fn no_damage_goes_unnoticed_or_makes_events_up(
        place in any::<proptest::sample::Index>(),
        cut in 0..400_usize,
        paste in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let events = realistic(4, 12, Duration::from_millis(6));
        let whole = encode(&events, 10);
        let first = heads(&whole)[0];
        let start = first + place.index(whole.len() - first);
        let mut bytes = whole.clone();
        bytes.splice(start..whole.len().min(start + cut), paste);
        prop_assume!(bytes != whole);
        let read = decode(&bytes);
        prop_assert!(read.iter().any(is_damage));
        let mut original = events.iter();
        prop_assert!(read
            .iter()
            .filter(|event| !is_damage(event))
            .all(|event| original.any(|original| original == event)));
    }

    #[test]
    fn arbitrary_bytes_are_never_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        whole in any::<bool>(),
        chunk in 1..3_000_usize,
    ) {
        let mut trace = if whole { encode_header(&header()) } else { Vec::new() };
        trace.extend_from_slice(&bytes);
        if let Ok((_, read)) = decode_in(&trace, chunk) {
            prop_assert_eq!(damage(&read), [1]);
        }
    }

    /// Checksums that are right say nothing of what they cover.
    #[test]
    fn arbitrary_events_in_a_sound_frame_are_never_a_panic(
        raw in proptest::collection::vec(any::<u8>(), 0..300),
        events in any::<u32>(),
        first_seq in any::<u64>(),
        first_time in any::<u64>(),
        raw_length in prop_oneof![Just(None), (0..LIMIT as u32).prop_map(Some)],
    ) {
        let body = zstd::bulk::compress(&raw, 1).unwrap();
        let head = Head {
            marker: FRAME,
            length: body.len() as u32,
            raw_length: raw_length.unwrap_or(raw.len() as u32),
            events,
            first_seq,
            first_time,
            crc: crc32fast::hash(&body),
        };
        let mut trace = encode_header(&header());
        trace.extend_from_slice(&head.encode());
        trace.extend_from_slice(&body);
        prop_assert!(decode(&trace).iter().any(is_damage));
    }
}
