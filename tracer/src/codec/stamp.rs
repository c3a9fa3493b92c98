//! A moment as a text states it: on the wall clock, and only so exact as it is written.

use jiff::Timestamp;

use crate::model::WallNs;

/// A moment, and how finely it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The moment.
    pub at: WallNs,
    /// The step of what was written, in nanoseconds: 1,000,000,000 for whole seconds. The true moment is less
    /// than this away; where the writer cut digits off (all of Kubernetes, conntrack), later than `at`.
    pub step_ns: u64,
}

impl Stamp {
    /// The first moment after all that the stamp can mean, if digits were cut off.
    pub fn end(self) -> WallNs {
        WallNs(self.at.0.saturating_add_unsigned(self.step_ns))
    }
}

/// An RFC 3339 time with its zone, with any number of digits of a second.
pub fn rfc3339(text: &str) -> Option<Stamp> {
    let at: Timestamp = text.parse().ok()?;
    let at = WallNs(i64::try_from(at.as_nanosecond()).ok()?);
    let digits = text
        .split_once(['.', ','])
        .map_or(0, |(_, fraction)| fraction.bytes().take_while(u8::is_ascii_digit).count());
    Some(Stamp { at, step_ns: step(digits, SECOND) })
}

/// A Unix time in seconds, milliseconds, microseconds or nanoseconds, with any number of decimals. Which of
/// them it is, its size tells: from September 2001 to November 2286 the four have no number in common, and
/// another number is no such time.
pub fn unix(text: &str) -> Option<Stamp> {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let unit = match whole.trim_start_matches('0').len() {
        10 => SECOND,
        13 => SECOND / 1_000,
        16 => SECOND / 1_000_000,
        19 => 1,
        _ => return None,
    };
    let (at, step_ns) = decimal(text, unit)?;
    Some(Stamp { at: WallNs(at), step_ns })
}

/// A decimal number of units of so many nanoseconds, exactly: in nanoseconds, with the step of what was
/// written. No sign, no exponent.
pub(super) fn decimal(text: &str, unit: u64) -> Option<(i64, u64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let unit_ns = i64::try_from(unit).ok()?;
    let mut ns = whole.parse::<i64>().ok()?.checked_mul(unit_ns)?;
    let mut weight = unit;
    for digit in fraction.bytes() {
        weight /= 10;
        ns = ns.checked_add_unsigned(u64::from(digit - b'0') * weight)?;
    }
    Some((ns, step(fraction.len(), unit)))
}

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;

fn step(digits: usize, unit: u64) -> u64 {
    let power = u32::try_from(digits).ok().and_then(|digits| 10_u64.checked_pow(digits));
    power.map_or(1, |power| unit / power).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn says(stamp: Option<Stamp>) -> String {
        stamp.map_or("none".to_owned(), |stamp| format!("{} ±{}", stamp.at.0, stamp.step_ns))
    }

    #[test]
    fn a_time_is_as_exact_as_it_is_written() {
        assert_eq!(says(rfc3339("2026-12-01T02:13:32Z")), "1796091212000000000 ±1000000000");
        assert_eq!(says(rfc3339("2026-12-01T03:13:32.25+01:00")), "1796091212250000000 ±10000000");
        assert_eq!(says(unix("1796091212.8565")), "1796091212856500000 ±100000");
        assert_eq!(says(unix("1796091212856")), "1796091212856000000 ±1000000");
        assert_eq!(says(unix("1796091212856558.5")), "1796091212856558500 ±100");
        assert_eq!(says(unix("1796091212856558001")), "1796091212856558001 ±1");
    }

    #[test]
    fn what_is_no_time_of_our_days_is_none() {
        for text in [
            "",
            ".",
            "-1",
            "0.5",
            "12",
            "1e9",
            "17960912128",
            "1796091212.5.5",
            "99999999999999999999",
        ] {
            assert_eq!(unix(text), None, "{text}");
        }
        for text in ["", "2026-12-01", "2026-12-01T02:13:32", "yesterday"] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(text in any::<String>(), number in "[0-9.]{0,30}") {
            for text in [text, number] {
                let _ = (unix(&text), rfc3339(&text), decimal(&text, SECOND));
            }
        }
    }
}
