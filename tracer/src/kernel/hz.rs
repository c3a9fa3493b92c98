//! The kernel's ticks a second, in which conntrack counts its timers.

use nix::time::{ClockId, clock_getres};

/// The tick rate, or none if the kernel does not say.
///
/// The coarse clocks advance once a tick, and the kernel gives the tick's length as their resolution
/// (`posix_get_coarse_res` in kernel/time/posix-timers.c returns `TICK_NSEC`), so this is exact and needs
/// neither privileges nor the kernel's configuration.
pub fn ticks_per_second() -> Option<u32> {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?;
    if tick.tv_sec() != 0 {
        return None;
    }
    from_tick(u64::try_from(tick.tv_nsec()).ok()?)
}

/// `TICK_NSEC` is a second divided by HZ, rounded: the other way round gives HZ again. Rates outside of
/// what kernels are built with (24 to 1200) mean that the clock is something else.
fn from_tick(tick_ns: u64) -> Option<u32> {
    let hz = (1_000_000_000 + tick_ns / 2).checked_div(tick_ns)?;
    u32::try_from(hz).ok().filter(|hz| (24..=1200).contains(hz))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_rate_comes_back_from_its_tick() {
        for hz in [24, 48, 100, 128, 250, 256, 300, 1000, 1024, 1200] {
            let tick_ns = (1_000_000_000 + hz / 2) / hz;
            assert_eq!(from_tick(tick_ns), Some(hz as u32), "{hz}");
        }
    }

    #[test]
    fn a_clock_that_is_not_a_tick_says_nothing() {
        assert_eq!(from_tick(0), None);
        assert_eq!(from_tick(1), None);
        assert_eq!(from_tick(500_000_000), None);
    }
}
