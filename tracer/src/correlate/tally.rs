//! Counts over time in constant memory: when a trace grows long, neighbouring bins are merged.

use std::time::Duration;

use crate::model::MonoNs;

/// More bins than this are never kept: then each two become one.
const MOST_BINS: usize = 1 << 15;

/// What happened in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bin {
    /// Requests that started.
    pub started: u64,
    /// Those of them that came on a connection that was there: they were no connects.
    pub kept: u64,
    /// Requests that started and were answered.
    pub ok: u64,
    /// Connects, of a request or not, that did not fail.
    pub connects_ok: u64,
    /// Connects of no known request that were not answered, but for those kept as meetings.
    pub unanswered: u64,
}

impl Bin {
    /// Requests that started and made a connection of their own.
    pub fn connects_started(&self) -> u64 {
        self.started.saturating_sub(self.kept)
    }
}

/// Requests and connects by the time of their start. The bins are 0.1 s wide, and grow.
#[derive(Clone, Debug)]
pub struct Tally {
    began: MonoNs,
    width: Duration,
    bins: Vec<Bin>,
}

impl Tally {
    pub(super) fn new(began: MonoNs) -> Tally {
        Tally { began, width: Duration::from_millis(100), bins: Vec::new() }
    }

    /// The bins that hold something or lie between such, with their beginnings.
    pub fn bins(&self) -> impl Iterator<Item = (MonoNs, Bin)> + '_ {
        self.bins.iter().enumerate().map(|(index, bin)| (self.start_of(index), *bin))
    }

    /// How wide a bin is: how exactly these counts know their times.
    pub fn width(&self) -> Duration {
        self.width
    }

    pub(super) fn at(&mut self, time: MonoNs) -> &mut Bin {
        let mut index = self.index(time);
        while index >= MOST_BINS {
            self.halve();
            index = self.index(time);
        }
        if self.bins.len() <= index {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    fn index(&self, time: MonoNs) -> usize {
        let index = time.since(self.began).as_nanos() / self.width.as_nanos().max(1);
        usize::try_from(index).unwrap_or(usize::MAX)
    }

    fn start_of(&self, index: usize) -> MonoNs {
        self.began + self.width * u32::try_from(index).unwrap_or(u32::MAX)
    }

    fn halve(&mut self) {
        self.width *= 2;
        self.bins = self
            .bins
            .chunks(2)
            .map(|pair| {
                pair.iter().fold(Bin::default(), |sum, bin| Bin {
                    started: sum.started + bin.started,
                    kept: sum.kept + bin.kept,
                    ok: sum.ok + bin.ok,
                    connects_ok: sum.connects_ok + bin.connects_ok,
                    unanswered: sum.unanswered + bin.unanswered,
                })
            })
            .collect();
    }
}
