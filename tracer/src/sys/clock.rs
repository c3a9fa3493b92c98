//! The clocks of this machine, read.

use nix::time::{ClockId, clock_gettime};

use crate::model::{ClockAnchor, MonoNs, WallNs};

/// Now, on `CLOCK_MONOTONIC`: the clock of `bpf_ktime_get_ns`.
pub fn now() -> MonoNs {
    MonoNs(
        u64::try_from(read(ClockId::CLOCK_MONOTONIC)).expect("the monotonic clock starts at boot"),
    )
}

/// The two clocks' relation: of several readings, the one with the smallest error.
pub fn anchor() -> ClockAnchor {
    (0..8)
        .map(|_| {
            let before = now();
            let wall = WallNs(read(ClockId::CLOCK_REALTIME));
            let after = now();
            let gap = after.0 - before.0;
            ClockAnchor { mono: MonoNs(before.0 + gap / 2), wall, error_ns: gap.div_ceil(2) }
        })
        .min_by_key(|anchor| anchor.error_ns)
        .expect("the range is not empty")
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock).expect("both clocks exist on every Linux");
    time.tv_sec() * 1_000_000_000 + time.tv_nsec()
}
