//! Where a capture has nothing: before it began, where it is damaged, and where it falls still in the middle.

use std::time::Duration;

use crate::model::MonoNs;

/// A pause is shorter than this.
const PAUSE: Duration = Duration::from_secs(3);
/// A hole is this many times as long as packets lie apart on average.
const TIMES: u32 = 1000;
/// Over how many packets that average goes.
const OVER: u64 = 256;

/// The holes of a capture.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// The last packet.
    before: Option<MonoNs>,
    packets: u64,
    /// How far packets lie apart, in nanoseconds.
    apart: u64,
    /// The end of the last hole.
    last: Option<MonoNs>,
    /// Stillnesses in the middle: how many, and how long together.
    still: (u64, Duration),
}

impl Holes {
    /// A packet. One that comes after a long stillness shows a hole.
    pub(super) fn packet(&mut self, now: MonoNs) {
        let Some(before) = self.before.replace(now) else {
            self.last = Some(now);
            return;
        };
        self.packets += 1;
        let gap = now.since(before);
        if self.packets > OVER && gap >= PAUSE && gap > Duration::from_nanos(self.apart) * TIMES {
            self.last = Some(now);
            self.still = (self.still.0 + 1, self.still.1 + gap);
            return;
        }
        let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        let weight = self.packets.min(OVER);
        self.apart = self.apart - self.apart / weight + gap / weight;
    }

    /// A hole ends here.
    pub(super) fn ends(&mut self, now: MonoNs) {
        self.last = Some(now);
    }

    /// The end of the last hole: at least the capture's beginning.
    pub(super) fn last(&self) -> Option<MonoNs> {
        self.last
    }

    /// What a reader must know of them.
    pub(super) fn note(&self) -> Option<String> {
        let (count, length) = self.still;
        (count > 0).then(|| {
            format!(
                "the capture falls still in the middle, {count} times for {:.1} s together: as if packets \
                 had been cut out",
                length.as_secs_f64()
            )
        })
    }
}
