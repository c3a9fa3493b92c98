//! What was lost on the way from the programs to here, as events.

use std::fs;
use std::os::fd::RawFd;
use std::time::Duration;

use aya::maps::{MapData, MapError, PerCpuArray};

use crate::model::{Event, EventKind, Hook, LossSource, MonoNs};
use crate::sys::clock;

/// The counters of losses, and what of them has been told already.
pub(super) struct Losses {
    counters: PerCpuArray<MapData, u64>,
    told: [u64; Hook::ALL.len()],
    undecoded: u64,
    passed_over: Vec<PassedOver>,
    /// When they were looked at last.
    looked: MonoNs,
    /// Taken before the counters were read last: what they did not hold then was lost after it.
    checked: MonoNs,
}

impl Losses {
    /// Nothing lost yet. The programs' descriptors must stay open until [`Losses::detached`].
    pub(super) fn new(
        counters: PerCpuArray<MapData, u64>,
        programs: impl IntoIterator<Item = (Hook, RawFd)>,
    ) -> Losses {
        let now = clock::now();
        let passed_over = programs
            .into_iter()
            .map(|(hook, program)| PassedOver { hook, program, told: 0 })
            .collect();
        Losses {
            counters,
            told: [0; Hook::ALL.len()],
            undecoded: 0,
            passed_over,
            looked: now,
            checked: now,
        }
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
        emit(lost, since, sink);
        if self.checked.since(self.looked) >= LOOK_EVERY {
            self.look(sink);
        }
        Ok(())
    }

    /// To be called when the programs are about to be detached: looks at them for the last time.
    pub(super) fn detached(&mut self, sink: &mut dyn FnMut(Event)) {
        self.look(sink);
        self.passed_over.clear();
    }

    fn look(&mut self, sink: &mut dyn FnMut(Event)) {
        let since = self.looked;
        self.looked = clock::now();
        let lost = self.passed_over.iter_mut().map(PassedOver::news).collect();
        emit(lost, since, sink);
    }
}

/// Reading the programs' counters costs a file each, and they hardly ever move.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the kernel passed over a program, which it counts since Linux 6.1 for tracepoints.
struct PassedOver {
    hook: Hook,
    program: RawFd,
    told: u64,
}

impl PassedOver {
    fn news(&mut self) -> (LossSource, u64) {
        let total = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.program))
            .ok()
            .and_then(|info| misses(&info))
            .unwrap_or(self.told);
        let count = total.saturating_sub(self.told);
        self.told = total;
        (LossSource::PassedOver(self.hook), count)
    }
}

/// `recursion_misses` of a program's fdinfo (`bpf_prog_show_fdinfo` in kernel/bpf/syscall.c).
fn misses(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

fn emit(lost: Vec<(LossSource, u64)>, since: MonoNs, sink: &mut dyn FnMut(Event)) {
    let time = clock::now();
    for (source, count) in lost {
        if count > 0 {
            sink(Event { time, kind: EventKind::Lost { source, count, since } });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_read_where_the_kernel_tells_them() {
        let info = "pos:\t0\nprog_id:\t669\nrun_cnt:\t0\nrecursion_misses:\t12\n";
        assert_eq!(misses(info), Some(12));
        assert_eq!(misses("pos:\t0\n"), None);
    }
}
