//! Durations, moments and sizes as people type them.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::codec::stamp;
use crate::model::{MonoNs, TraceHeader, WallNs};

/// `170s`, `500ms`, `2m`, or plain seconds: `170`, `0.5`.
pub fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|_| "a duration is zero or more seconds, such as 5s or 500ms".to_owned());
    }
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it like 5s, 500ms or 2m"))
}

/// A [`duration`] of more than zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        duration => Ok(duration),
    }
}

/// `300ms..800ms`, or one duration for both ends.
pub fn durations(text: &str) -> Result<RangeInclusive<Duration>, String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let (min, max) = (duration(min)?, duration(max)?);
    if min > max {
        return Err(format!("{text} is empty: write the smaller one first"));
    }
    Ok(min..=max)
}

/// A moment: on the wall clock, or counted from the trace's beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// Unix seconds.
    Unix(f64),
    /// Seconds since the trace began.
    SinceBegan(f64),
}

impl Moment {
    /// The moment on a trace's clock; none if that is before the clock began.
    pub fn on(self, header: &TraceHeader) -> Option<MonoNs> {
        let ns = match self {
            Moment::SinceBegan(seconds) => header.began.0 as f64 + seconds * 1e9,
            Moment::Unix(seconds) => {
                header.anchor.mono.0 as f64 + (seconds * 1e9 - header.anchor.wall.0 as f64)
            }
        };
        (ns >= 0.0).then_some(MonoNs(ns as u64))
    }
}

/// Unix seconds before this are none that a trace can tell of: they are meant to count from its beginning (2001).
const RECENT: f64 = 1e9;

/// `1796091210.5` is Unix time, `+5.5` counts from the trace's beginning.
pub fn moment(text: &str) -> Result<Moment, String> {
    let wrong = || {
        "write it as Unix seconds (1796091210.5) or as +SECONDS since the trace began (+5)"
            .to_owned()
    };
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(wrong());
    }
    if !text.starts_with('+') && seconds < RECENT {
        return Err(format!("that is a moment of 1970; since the trace began: +{text}"));
    }
    Ok(if text.starts_with('+') { Moment::SinceBegan(seconds) } else { Moment::Unix(seconds) })
}

/// A moment of the wall clock, as Unix seconds: `1796091210.5`.
pub fn unix(text: &str) -> Result<WallNs, String> {
    let stamp = stamp::unix(text).ok_or("write it as Unix seconds, like 1796091210.5")?;
    Ok(stamp.at)
}

/// How far a time zone is ahead of UTC, in seconds: `+01:00`, `-0530`, `+2`, `UTC`.
pub fn zone(text: &str) -> Result<i32, String> {
    let wrong = || "write it as the offset from UTC, like +01:00 or -05:30".to_owned();
    if matches!(text, "UTC" | "utc" | "Z") {
        return Ok(0);
    }
    let (sign, digits) = match text.as_bytes().first() {
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        _ => return Err(wrong()),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
        None => (digits, "0"),
    };
    let number = |part: &str| {
        let is_number = matches!(part.len(), 1 | 2) && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<i32>().ok().filter(|_| is_number).ok_or_else(wrong)
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    // The widest offsets in use are -12:00 and +14:00.
    if hours > 14 || minutes > 59 {
        return Err(wrong());
    }
    Ok(sign * (hours * 3_600 + minutes * 60))
}

/// A number from 0 to 1.
pub fn probability(text: &str) -> Result<f64, String> {
    let probability: f64 = text.parse().map_err(|_| "a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&probability) {
        Ok(probability)
    } else {
        Err("a number from 0 to 1".to_owned())
    }
}

/// A Service or another server: `10.96.0.20:80`, `[fd00::20]:80`.
pub fn endpoint(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(endpoint) if endpoint.port() == 0 => Err("a port is 1 to 65535".to_owned()),
        Ok(endpoint) => Ok(endpoint),
        Err(_) => Err("write it as ADDRESS:PORT, like 10.96.0.20:80 or [fd00::20]:80".to_owned()),
    }
}

/// A Service, by its address or by its name in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// Its address and port in front of NAT.
    Address(SocketAddr),
    /// What the API calls it.
    Named {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A Service: `10.96.0.20:80`, `shop/web`, or `web` in the namespace `default`.
pub fn service(text: &str) -> Result<ServiceName, String> {
    if text.contains(':') {
        return endpoint(text).map(ServiceName::Address);
    }
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    // RFC 1123 labels, as the API has them.
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !is_label(namespace) || !is_label(name) {
        return Err(
            "write it as ADDRESS:PORT, like 10.96.0.20:80 or [fd00::20]:80, or as NAMESPACE/NAME"
                .to_owned(),
        );
    }
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Ok(ServiceName::Named { namespace, name })
}

/// NAMESPACE/NAME of something in a cluster.
pub fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err("write it as NAMESPACE/NAME".to_owned()),
    }
}

/// The size of a ring buffer, in [`bytes`]: more than nothing, and not so much that the kernel's rounding up
/// could not follow.
pub fn ring(text: &str) -> Result<u32, String> {
    match bytes(text)? {
        0 => Err("must be more than 0".to_owned()),
        size if size > 1 << 30 => Err("must be at most 1G".to_owned()),
        size => Ok(size),
    }
}

/// Bytes, with `K`, `M` or `G` for powers of 1024: `65536`, `64K`, `16M`.
pub fn bytes(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1u32),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .ok_or_else(|| "write a size below 4 GiB like 65536, 64K or 16M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "-1", "nan", "inf", "5 parsecs", "1e300"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_of_durations_has_two_ends_or_one() {
        let range = |min, max| Duration::from_millis(min)..=Duration::from_millis(max);
        assert_eq!(durations("300ms..800ms"), Ok(range(300, 800)));
        assert_eq!(durations("0..1.5"), Ok(range(0, 1500)));
        assert_eq!(durations("20s"), Ok(range(20_000, 20_000)));
        for wrong in ["", "..", "1s..", "2s..1s", "1s..2s..3s"] {
            assert!(durations(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_powers_of_1024() {
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("16M"), Ok(16 << 20));
        for wrong in ["", "K", "4G", "-1", "1.5M", "ä"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ring_buffer_has_a_size_that_can_be_rounded_up() {
        assert_eq!(ring("4096"), Ok(4096));
        assert_eq!(ring("1G"), Ok(1 << 30));
        for wrong in ["0", "1025M", "3G"] {
            assert!(ring(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_endpoint_has_an_address_and_a_port() {
        for right in ["10.96.0.20:80", "[fd00::20]:80"] {
            assert_eq!(endpoint(right).map(|endpoint| endpoint.to_string()), Ok(right.to_owned()));
        }
        for wrong in ["10.96.0.20", "fd00::20", "10.96.0.20:0", "default/web", "web:80", ""] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_zone_is_an_offset() {
        for (text, seconds) in
            [("+01:00", 3_600), ("-0530", -19_800), ("+2", 7_200), ("UTC", 0), ("+14:00", 50_400)]
        {
            assert_eq!(zone(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "1", "+", "+1:2:3", "+15", "+01:60", "Europe/Berlin", "+ä1:00", "-+1"] {
            assert!(zone(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_on_one_of_two_scales() {
        assert_eq!(moment("+5"), Ok(Moment::SinceBegan(5.0)));
        assert_eq!(moment("1796091210.5"), Ok(Moment::Unix(1796091210.5)));
        for wrong in ["", "-5", "noon", "nan", "inf"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
