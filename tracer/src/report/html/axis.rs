//! Axes with steps that a reader knows: whole seconds, minutes and hours, whole counts, ports.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::super::words::count;

/// An axis from one value to a greater one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Time,
    Count,
    Port,
    Lane,
}

/// Steps in seconds; past the last, days.
const TIMES: [f64; 16] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 7_200.0,
    14_400.0, 43_200.0,
];
const DAY: f64 = 86_400.0;

impl Axis {
    /// Seconds since the trace began, for at least one.
    pub(super) fn time(duration: f64) -> Axis {
        Axis { from: 0.0, to: sound(duration).max(1.0), of: Of::Time }
    }

    /// A count from nothing up.
    pub(super) fn count(most: u64) -> Axis {
        Axis { from: 0.0, to: most.max(1) as f64 * 1.08, of: Of::Count }
    }

    /// The ports of a map, with a little room around them.
    pub(super) fn ports(ports: impl Iterator<Item = u16> + Clone) -> Axis {
        let low = f64::from(ports.clone().min().unwrap_or(0));
        let high = f64::from(ports.max().unwrap_or(u16::MAX));
        let room = ((high - low) * 0.03).max(8.0);
        Axis { from: (low - room).max(0.0), to: high + room, of: Of::Port }
    }

    /// Rows from 0 up, whose labels are not the axis' own.
    pub(super) fn lanes(lanes: usize) -> Axis {
        Axis { from: -0.7, to: lanes.max(1) as f64 - 0.3, of: Of::Lane }
    }

    /// CSS pixels that the labels of a vertical axis need.
    pub(super) fn label_width(&self) -> u32 {
        let longest = match self.of {
            Of::Lane => 5,
            _ => self.label(self.to).chars().count().max(2),
        };
        u32::try_from(longest).unwrap_or(12) * 7 + 8
    }

    /// The value, or the nearest that the axis has.
    pub(super) fn within(&self, value: f64) -> f64 {
        sound(value).clamp(self.from, self.to)
    }

    pub(super) fn label(&self, value: f64) -> String {
        match self.of {
            Of::Time => {
                let (unit, per) = match self.to {
                    to if to <= 600.0 => ("s", 1.0),
                    to if to <= 36_000.0 => ("min", 60.0),
                    to if to <= 10.0 * DAY => ("h", 3_600.0),
                    _ => ("d", DAY),
                };
                format!("{:.0} {unit}", value / per)
            }
            Of::Count => count(value.max(0.0) as u64),
            Of::Port => format!("{value:.0}"),
            Of::Lane => String::new(),
        }
    }

    /// The least step of which no more than so many fit.
    fn step(&self, most: usize) -> f64 {
        let least = (self.to - self.from) / most.max(1) as f64;
        let known = match self.of {
            Of::Time => TIMES.into_iter().find(|step| *step >= least),
            Of::Count | Of::Port | Of::Lane => None,
        };
        let unit = if self.of == Of::Time { DAY } else { 1.0 };
        known.unwrap_or_else(|| {
            let least = (least / unit).max(1.0);
            let power = 10_f64.powf(least.log10().floor());
            let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= least);
            times.unwrap_or(10.0) * power * unit
        })
    }
}

/// Times and counts come from outside: what is no number is nothing.
fn sound(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (self.within(*value) - self.from) / (self.to - self.from);
        limit.0 + (f64::from(limit.1 - limit.0) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if self.of == Of::Lane {
            return Vec::new();
        }
        let most = hint.max_num_points().clamp(1, 20);
        let step = self.step(most);
        let first = (self.from / step).ceil();
        (0..=most)
            .map(|nth| (first + nth as f64) * step)
            .take_while(|value| *value <= self.to)
            .collect()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

#[cfg(test)]
mod tests {
    use plotters::coord::ranged1d::BoldPoints;

    use super::*;

    fn labels(axis: Axis, most: usize) -> String {
        let points = axis.key_points(BoldPoints(most));
        points.iter().map(|at| axis.label(*at)).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn steps_are_those_that_a_reader_knows() {
        assert_eq!(
            labels(Axis::time(170.0), 10),
            "0 s, 20 s, 40 s, 60 s, 80 s, 100 s, 120 s, 140 s, 160 s"
        );
        assert_eq!(labels(Axis::time(3_000.0), 6), "0 min, 10 min, 20 min, 30 min, 40 min, 50 min");
        assert_eq!(labels(Axis::time(0.0), 6), "0 s, 1 s");
        assert_eq!(labels(Axis::count(3), 6), "0, 1, 2, 3");
        assert_eq!(labels(Axis::count(0), 6), "0, 1");
        assert_eq!(labels(Axis::count(28_000), 6), "0, 10,000, 20,000, 30,000");
        assert_eq!(
            labels(Axis::ports([32_768, 60_998].into_iter()), 6),
            "35000, 40000, 45000, 50000, 55000, 60000"
        );
    }

    #[test]
    fn what_is_outside_is_at_the_edge() {
        let axis = Axis::time(100.0);
        assert_eq!(axis.map(&-5.0, (0, 1_000)), 0);
        assert_eq!(axis.map(&1e12, (0, 1_000)), 1_000);
        assert_eq!(axis.map(&f64::NAN, (0, 1_000)), 0);
        assert_eq!(Axis::time(f64::INFINITY).range(), 0.0..1.0);
    }
}
