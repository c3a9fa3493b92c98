//! The attempts over time and source ports, for a picture, in constant memory: of those that lie too close
//! together to be told apart, one is kept with the number that it stands for. Those that made a request fail, or
//! met a stale entry, are kept one by one elsewhere.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::FixedState;

use crate::model::{MonoNs, SrcPort};

/// More cells than this are never kept: then two neighbours become one, in time and in ports by turns.
const MOST_CELLS: usize = 1 << 15;

/// How an attempt of the sample ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SampledEnd {
    /// It was accepted, or its request was answered.
    Answered,
    /// It belongs to no known request, and was not accepted.
    Unanswered,
}

/// One attempt, and how many it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sampled {
    /// When its request started, or else its first SYN.
    pub start: MonoNs,
    /// Its source port.
    pub port: SrcPort,
    /// How it ended.
    pub end: SampledEnd,
    /// How many attempts there were in its cell, itself included.
    pub stands_for: u64,
}

/// The attempts, thinned. Which of a cell is kept does not depend on the order in which they ended: it is the
/// earliest. The cells are 0.1 s wide and 64 ports high, and grow.
#[derive(Clone, Debug)]
pub struct Sample {
    began: MonoNs,
    width: Duration,
    height: u16,
    cells: HashMap<Place, Cell, FixedState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    column: u64,
    row: u16,
    end: SampledEnd,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    first: (MonoNs, SrcPort),
    stands_for: u64,
}

impl Sample {
    pub(super) fn new(began: MonoNs) -> Sample {
        Sample {
            began,
            width: Duration::from_millis(100),
            height: 64,
            cells: HashMap::with_hasher(FixedState::default()),
        }
    }

    /// The attempts that were kept, by their start.
    pub fn attempts(&self) -> Vec<Sampled> {
        let sampled = |(place, cell): (&Place, &Cell)| Sampled {
            start: cell.first.0,
            port: cell.first.1,
            end: place.end,
            stands_for: cell.stands_for,
        };
        let mut attempts: Vec<Sampled> = self.cells.iter().map(sampled).collect();
        attempts.sort();
        attempts
    }

    pub(super) fn add(&mut self, start: MonoNs, port: u16, end: SampledEnd) {
        self.put(end, Cell { first: (start, SrcPort(port)), stands_for: 1 });
        while self.cells.len() > MOST_CELLS {
            self.thin();
        }
    }

    fn put(&mut self, end: SampledEnd, cell: Cell) {
        let (start, port) = cell.first;
        let column = start.since(self.began).as_nanos() / self.width.as_nanos().max(1);
        let column = u64::try_from(column).unwrap_or(u64::MAX);
        let place = Place { column, row: port.0 / self.height, end };
        self.cells
            .entry(place)
            .and_modify(|known| {
                known.first = known.first.min(cell.first);
                known.stands_for += cell.stands_for;
            })
            .or_insert(cell);
    }

    /// Makes the cells twice as large, in the direction in which they are smaller as a picture shows them:
    /// pictures have about twice as many columns as rows.
    fn thin(&mut self) {
        let doublings = self.width.as_millis() / 100;
        if doublings <= u128::from(self.height / 64) || self.height > 1 << 12 {
            self.width *= 2;
        } else {
            self.height *= 2;
        }
        for (place, cell) in std::mem::take(&mut self.cells) {
            self.put(place.end, cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> MonoNs {
        MonoNs(1_000_000_000) + Duration::from_millis(ms)
    }

    fn sample(attempts: impl Iterator<Item = (u64, u16)>) -> Sample {
        let mut sample = Sample::new(ms(0));
        for (start, port) in attempts {
            sample.add(ms(start), port, SampledEnd::Answered);
        }
        sample
    }

    #[test]
    fn what_lies_apart_is_all_kept_and_what_lies_together_stands_for_its_number() {
        let sample = sample([(40, 40_002), (10, 40_004), (250, 40_002), (30, 50_000)].into_iter());
        let kept: Vec<(u16, u64)> =
            sample.attempts().iter().map(|it| (it.port.0, it.stands_for)).collect();
        assert_eq!(kept, [(40_004, 2), (50_000, 1), (40_002, 1)]);
    }

    #[test]
    fn answered_and_unanswered_never_hide_each_other() {
        let mut sample = Sample::new(ms(0));
        sample.add(ms(1), 40_002, SampledEnd::Answered);
        sample.add(ms(1), 40_002, SampledEnd::Unanswered);
        assert_eq!(sample.attempts().len(), 2);
    }

    #[test]
    fn a_million_attempts_take_the_room_of_a_few_and_none_is_forgotten() {
        let walk = |nth: u64| (nth * 6, 32_768 + (nth * 2_654_435_761 % 28_232) as u16);
        let long = sample((0..1_000_000).map(walk));
        let kept = long.attempts();
        assert!(kept.len() <= MOST_CELLS && kept.len() > MOST_CELLS / 4, "{}", kept.len());
        assert_eq!(kept.iter().map(|it| it.stands_for).sum::<u64>(), 1_000_000);
        // The whole time is covered, at all ports.
        let last = kept.last().map(|it| it.start);
        assert!(last > Some(ms(5_990_000)), "{last:?}");
        let backwards = sample((0..1_000_000).rev().map(walk));
        assert_eq!(backwards.attempts(), kept, "the order of their ends makes no difference");
    }
}
