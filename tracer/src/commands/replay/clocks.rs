//! Captures of several nodes: how far their clocks are apart, by the packets that two of them saw.
//!
//! A segment that left one node and came to another took some time: its two stamps bound the difference of the
//! clocks from one side. One that went the other way bounds it from the other side, as NTP has it (RFC 5905, 8).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::files::{CaptureReader, FileError, Input, Piece};
use crate::model::{Captured, Segment, Tuple, Way};

/// So many segments of each capture are looked at: they bound the difference well, and memory.
const LOOK: usize = 100_000;
/// A node sees one segment at several devices within this time. What it sees again later was sent again.
const PASSES: i64 = 100_000_000;
/// Two bounds may contradict each other by this much: clocks drift.
const DRIFT: i64 = 1_000_000;

/// The captures' clocks.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    /// For each capture, by how many nanoseconds its times are ahead of those of the first one that shows NAT.
    pub(super) ahead: Vec<i64>,
    /// What was found, a sentence each.
    pub(super) notes: Vec<String>,
}

/// Compares the clocks of all captures. Of a single one there is nothing to say.
///
/// # Errors
/// If a capture can't be read.
pub(super) fn compare(paths: &[PathBuf]) -> Result<Clocks, FileError> {
    let mut clocks = Clocks { ahead: vec![0; paths.len()], notes: Vec::new() };
    if paths.len() < 2 {
        return Ok(clocks);
    }
    let views: Vec<View> = paths.iter().map(|path| View::read(path)).collect::<Result<_, _>>()?;
    let most = views.iter().map(|view| view.translated).max().unwrap_or(0);
    let reference = views.iter().position(|view| view.translated == most).unwrap_or(0);
    let mut known = vec![reference];
    // From those that are known to those that share packets with one of them.
    loop {
        let unknown = (0..views.len()).filter(|at| !known.contains(at));
        let next = unknown
            .flat_map(|at| known.iter().map(move |by| (at, *by)))
            .find_map(|(at, by)| views[by].difference(&views[at]).map(|found| (at, by, found)));
        let Some((at, by, Difference { ahead, error, segments })) = next else { break };
        clocks.ahead[at] = clocks.ahead[by] + ahead;
        known.push(at);
        // One node's files, by device or by time, have one clock.
        if ahead.unsigned_abs() > error {
            clocks.notes.push(format!(
                "The clock of {} is {} of that of {} (known to {}, by {segments} segments that both saw): its times \
                 are corrected by it.",
                paths[at].display(),
                direction(ahead),
                paths[by].display(),
                milliseconds(error),
            ));
        }
    }
    for at in (0..views.len()).filter(|at| !known.contains(at)) {
        if views.iter().enumerate().any(|(other, view)| other != at && view.overlaps(&views[at])) {
            clocks.notes.push(format!(
                "How far the clock of {} is from the others' is not known: no segment was seen by it and by another. \
                 Its times are taken as they are.",
                paths[at].display()
            ));
        }
    }
    Ok(clocks)
}

fn direction(ahead: i64) -> String {
    let side = if ahead > 0 { "ahead" } else { "behind" };
    format!("{} {side}", milliseconds(ahead.unsigned_abs()))
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", Duration::from_nanos(ns).as_secs_f64() * 1e3)
}

/// What tells one segment from all others, wherever it is seen between two translations.
type Key = (Tuple, u32, bool);

/// How one node saw a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sight {
    first: i64,
    last: i64,
    came_in: bool,
    went_out: bool,
}

/// What one capture has of SYNs and SYN-ACKs.
#[derive(Debug, Default)]
struct View {
    sights: HashMap<Key, Sight>,
    /// How many sequence numbers were seen with different tuples: NAT, seen before and after.
    translated: usize,
    span: Option<(i64, i64)>,
}

/// How far a clock is ahead of another, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Difference {
    ahead: i64,
    error: u64,
    segments: usize,
}

/// The closest bounds so far.
#[derive(Clone, Copy, Debug, Default)]
struct Bounds {
    below: Option<i64>,
    above: Option<i64>,
    segments: usize,
}

impl Bounds {
    /// A segment that went to the other node.
    fn there(&mut self, here: &Sight, other: &Sight) {
        let bound = other.first - here.last;
        self.above = Some(self.above.map_or(bound, |above| above.min(bound)));
        self.segments += 1;
    }

    /// A segment that came from it.
    fn back(&mut self, here: &Sight, other: &Sight) {
        let bound = other.last - here.first;
        self.below = Some(self.below.map_or(bound, |below| below.max(bound)));
        self.segments += 1;
    }

    fn difference(self) -> Option<Difference> {
        let (below, above) = (self.below?, self.above?);
        (above >= below - DRIFT).then(|| Difference {
            ahead: below + (above - below) / 2,
            error: (above - below).unsigned_abs().div_ceil(2),
            segments: self.segments,
        })
    }
}

impl View {
    fn read(path: &Path) -> Result<View, FileError> {
        let mut view = View::default();
        let mut numbers: HashMap<(u32, bool), Tuple> = HashMap::new();
        let mut translated: HashSet<(u32, bool)> = HashSet::new();
        for piece in CaptureReader::new(Input::open(path)?) {
            let Piece::Packet(packet) = piece? else { continue };
            view.see(&packet);
            if let Some((tuple, number, is_answer)) = key(&packet) {
                let number = (number, is_answer);
                if *numbers.entry(number).or_insert(tuple) != tuple {
                    translated.insert(number);
                }
            }
            if view.sights.len() >= LOOK {
                break;
            }
        }
        view.translated = translated.len();
        Ok(view)
    }

    fn see(&mut self, packet: &Captured) {
        let time = packet.time.0;
        let (from, to) = self.span.unwrap_or((time, time));
        self.span = Some((from.min(time), to.max(time)));
        let Some(key) = key(packet) else { return };
        let came_in = packet.way == Some(Way::In);
        let went_out = packet.way == Some(Way::Out);
        self.sights
            .entry(key)
            .and_modify(|sight| {
                sight.last = sight.last.max(time);
                sight.went_out = went_out;
            })
            .or_insert(Sight { first: time, last: time, came_in, went_out });
    }

    fn overlaps(&self, other: &View) -> bool {
        let spans = self.span.zip(other.span);
        spans.is_some_and(|(mine, theirs)| mine.0 <= theirs.1 && theirs.0 <= mine.1)
    }

    /// How far the other's clock is ahead of this one's.
    fn difference(&self, other: &View) -> Option<Difference> {
        let once = |sight: &Sight| sight.last - sight.first < PASSES;
        let mut by_way = Bounds::default();
        // Where no capture tells which way a segment went: connects go there, or connects come from there.
        let (mut there, mut back) = (Bounds::default(), Bounds::default());
        for (key, here) in self.sights.iter().filter(|(_, sight)| once(sight)) {
            let Some(over_there) = other.sights.get(key).filter(|sight| once(sight)) else {
                continue;
            };
            if here.went_out && over_there.came_in {
                by_way.there(here, over_there);
            } else if over_there.went_out && here.came_in {
                by_way.back(here, over_there);
            }
            let (_, _, is_answer) = key;
            if *is_answer {
                there.back(here, over_there);
                back.there(here, over_there);
            } else {
                there.there(here, over_there);
                back.back(here, over_there);
            }
        }
        by_way.difference().or_else(|| {
            // The wrong one of the two has its bounds the wrong way round, by the time that segments took.
            let both = [there.difference(), back.difference()].into_iter().flatten();
            both.min_by_key(|found| found.error)
        })
    }
}

/// Of a SYN or a SYN-ACK.
fn key(packet: &Captured) -> Option<Key> {
    match packet.segment {
        Segment::Tcp { flags, seq, .. } if flags.is_syn() => Some((packet.tuple, seq, false)),
        Segment::Tcp { flags, seq, .. } if flags.is_syn_ack() => Some((packet.tuple, seq, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{IfIndex, TcpFlags, WallNs};

    fn packet(time: i64, seq: u32, is_answer: bool, way: Option<Way>) -> Captured {
        let [client, pod] = ["10.244.1.16:40000", "10.244.2.6:8080"].map(|it| it.parse().unwrap());
        let flags = TcpFlags(TcpFlags::SYN | if is_answer { TcpFlags::ACK } else { 0 });
        Captured {
            time: WallNs(time),
            ifindex: IfIndex(0),
            way,
            tuple: if is_answer { Tuple::new(pod, client) } else { Tuple::new(client, pod) },
            segment: Segment::Tcp { flags, seq, ack: 0 },
            timestamp: None,
            about: None,
        }
    }

    /// Two nodes, the second's clock `ahead`; a connect to it takes 200 µs, its answer 300 µs.
    fn nodes(ahead: i64, with_ways: bool) -> (View, View) {
        let (mut here, mut there) = (View::default(), View::default());
        let way = |way| with_ways.then_some(way);
        for nth in 0..10 {
            let (time, seq) = (i64::from(nth) * 50_000_000, nth * 1000);
            here.see(&packet(time, seq, false, way(Way::Out)));
            there.see(&packet(time + 200_000 + ahead, seq, false, way(Way::In)));
            there.see(&packet(time + 210_000 + ahead, seq, false, way(Way::Out)));
            there.see(&packet(time + 400_000 + ahead, seq, true, way(Way::In)));
            there.see(&packet(time + 410_000 + ahead, seq, true, way(Way::Out)));
            here.see(&packet(time + 710_000, seq, true, way(Way::In)));
        }
        (here, there)
    }

    #[test]
    fn the_difference_lies_between_the_bounds_of_both_ways() {
        for ahead in [0, 37_000_000, -2_000_000_000] {
            for with_ways in [true, false] {
                let (here, there) = nodes(ahead, with_ways);
                let found = here.difference(&there).unwrap();
                assert!((found.ahead - ahead).unsigned_abs() <= found.error, "{ahead}: {found:?}");
                assert!(found.error <= 250_000, "{found:?}");
                let back = there.difference(&here).unwrap();
                assert!((back.ahead + ahead).unsigned_abs() <= back.error, "{ahead}: {back:?}");
            }
        }
    }

    #[test]
    fn a_segment_that_was_sent_again_bounds_nothing() {
        let (mut here, mut there) = nodes(0, true);
        here.see(&packet(1_000_000_000, 0, false, Some(Way::Out)));
        there.see(&packet(1_000_200_000, 0, false, Some(Way::In)));
        let found = here.difference(&there).unwrap();
        assert!(found.ahead.unsigned_abs() <= found.error && found.error <= 250_000, "{found:?}");
    }

    #[test]
    fn without_a_common_segment_or_with_one_way_alone_it_is_not_known() {
        let (here, _) = nodes(0, true);
        let mut there = View::default();
        assert_eq!(here.difference(&there), None);
        there.see(&packet(200_000, 0, false, Some(Way::In)));
        assert_eq!(here.difference(&there), None);
    }
}
