//! Medians and their spread, and whether a bar was reached.

use std::fmt;

/// The median of some measurements, and the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Spread {
    /// Of at least one value.
    pub(super) fn of(values: &[f64]) -> Option<Spread> {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Spread { median, low, high })
    }

    /// Whether all of it lies on one side of the bar.
    pub(super) fn against(&self, bar: Bar) -> Judged {
        let is_good = |value| match bar {
            Bar::AtLeast(bar) => value >= bar,
            Bar::Below(bar) => value < bar,
        };
        match (is_good(self.low), is_good(self.high)) {
            (true, true) => Judged::Reached,
            (false, false) => Judged::Missed,
            _ => Judged::Undecided,
        }
    }
}

/// What a measurement should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bar {
    AtLeast(f64),
    Below(f64),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Reached,
    Missed,
    /// Some runs reached it and some did not.
    Undecided,
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Judged::Reached => "reached",
            Judged::Missed => "missed",
            Judged::Undecided => "undecided",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Some(Spread { median: 2.5, low: 1.0, high: 4.0 }));
        assert_eq!(Spread::of(&[7.0]).map(|spread| spread.median), Some(7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_spread_across_the_bar_decides_nothing() {
        let spread = Spread { median: 3.1, low: 2.9, high: 3.2 };
        assert_eq!(spread.against(Bar::AtLeast(3.0)), Judged::Undecided);
        assert_eq!(spread.against(Bar::AtLeast(2.5)), Judged::Reached);
        assert_eq!(spread.against(Bar::AtLeast(3.3)), Judged::Missed);
        assert_eq!(spread.against(Bar::Below(3.3)), Judged::Reached);
    }
}
