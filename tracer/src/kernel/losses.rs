//! What was lost on the way from the programs to here, as events.

use aya::maps::{MapData, MapError, PerCpuArray};

use crate::model::{Event, EventKind, Hook, LossSource, MonoNs};
use crate::sys::clock;

/// The counters of losses, and what of them has been told already.
pub(super) struct Losses {
    counters: PerCpuArray<MapData, u64>,
    told: [u64; Hook::ALL.len()],
    undecoded: u64,
    /// Taken before the counters were read last: what they did not hold then was lost after it.
    checked: MonoNs,
}

impl Losses {
    /// Nothing lost yet.
    pub(super) fn new(counters: PerCpuArray<MapData, u64>) -> Losses {
        Losses { counters, told: [0; Hook::ALL.len()], undecoded: 0, checked: clock::now() }
    }

    /// Counts a record that could not be understood.
    pub(super) fn add_undecoded(&mut self) {
        self.undecoded += 1;
    }

    /// Passes on an event for each source that lost something since the last call.
    pub(super) fn tell(&mut self, sink: &mut dyn FnMut(Event)) -> Result<(), MapError> {
        let since = self.checked;
        self.checked = clock::now();
        let mut lost = Vec::new();
        for ((index, hook), told) in (0_u32..).zip(Hook::ALL).zip(&mut self.told) {
            let total = self.counters.get(&index, 0)?.iter().sum::<u64>();
            lost.push((LossSource::Ring(hook), total.saturating_sub(*told)));
            *told = total;
        }
        lost.push((LossSource::Codec, std::mem::take(&mut self.undecoded)));
        let time = clock::now();
        for (source, count) in lost {
            if count > 0 {
                sink(Event { time, kind: EventKind::Lost { source, count, since } });
            }
        }
        Ok(())
    }
}
