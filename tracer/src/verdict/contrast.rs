//! The contrast: do attempts that met a live stale entry fail more often than the others?

use statrs::function::factorial::ln_factorial;

/// Fisher's exact test, one-sided: how likely is it that at least `stale_failed` of the failures fall on
/// attempts that met a stale entry, if meeting one made no difference. None where a margin of the table
/// is zero: nothing can be compared then. At 10⁷ attempts the relative error stays below 10⁻⁶.
pub fn fisher_one_sided(
    stale_failed: u64,
    stale_ok: u64,
    other_failed: u64,
    other_ok: u64,
) -> Option<f64> {
    let stale = stale_failed.checked_add(stale_ok)?;
    let other = other_failed.checked_add(other_ok)?;
    let failed = stale_failed.checked_add(other_failed)?;
    let ok = stale_ok.checked_add(other_ok)?;
    stale.checked_add(other)?;
    if stale == 0 || other == 0 || failed == 0 || ok == 0 {
        return None;
    }
    let table = Margins { stale, other, failed, ok };
    // Sum the tail that falls away from its first term, so that every further term is smaller than the
    // one before: above the mean that is the tail itself, below it the rest.
    let mean = failed as f64 * (stale as f64 / (stale as f64 + other as f64));
    let p = if stale_failed as f64 > mean {
        table.probability(stale_failed) * tail((stale_failed..).map(|k| table.step_up(k)))
    } else if stale_failed == table.least() {
        1.0
    } else {
        let below = stale_failed - 1;
        1.0 - table.probability(below) * tail((0..=below).rev().map(|k| table.step_down(k)))
    };
    Some(p.clamp(0.0, 1.0))
}

/// The sums of a 2×2 table's rows and columns, which the test holds fixed. What is left free is how many of
/// the failures fall on the stale row: hypergeometric.
struct Margins {
    stale: u64,
    other: u64,
    failed: u64,
    ok: u64,
}

impl Margins {
    /// The fewest failures that the stale row can have.
    fn least(&self) -> u64 {
        self.failed.saturating_sub(self.other)
    }

    /// The probability of exactly `k` failures on the stale row.
    fn probability(&self, k: u64) -> f64 {
        let ln = ln_factorial(self.stale)
            + ln_factorial(self.other)
            + ln_factorial(self.failed)
            + ln_factorial(self.ok)
            - ln_factorial(self.stale + self.other)
            - ln_factorial(k)
            - ln_factorial(self.stale - k)
            - ln_factorial(self.failed - k)
            - ln_factorial(self.other - (self.failed - k));
        ln.exp()
    }

    /// The ratio of the probability of `k + 1` to that of `k`; zero at the end of the range.
    fn step_up(&self, k: u64) -> f64 {
        let (stale_left, failed_left) = (self.stale - k, self.failed - k);
        let other_ok = self.other - failed_left;
        (stale_left as f64 / (k as f64 + 1.0)) * (failed_left as f64 / (other_ok as f64 + 1.0))
    }

    /// The ratio of the probability of `k - 1` to that of `k`; zero at the end of the range.
    fn step_down(&self, k: u64) -> f64 {
        let (stale_ok, other_failed) = (self.stale - k, self.failed - k);
        let other_ok = self.other - other_failed;
        (k as f64 / (stale_ok as f64 + 1.0)) * (other_ok as f64 / (other_failed as f64 + 1.0))
    }
}

/// The sum of a tail in units of its first term, from the ratio of each term to the one before. Ends when
/// the terms have become too small to change it: they fall faster and faster, down to zero.
fn tail(ratios: impl Iterator<Item = f64>) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for ratio in ratios {
        term *= ratio;
        if term < sum * f64::EPSILON / 4.0 {
            break;
        }
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Worked out with exact integers.
    #[test]
    fn known_values() {
        for ((a, b, c, d), exact) in [
            ((3, 1, 1, 3), 0.24285714285714285),
            ((51, 0, 0, 25903), 1.2234168673358245e-159),
            ((51, 0, 12, 25903), 3.1884611267297617e-147),
            ((10, 2, 3, 15), 0.000465180943362905),
            ((1, 9, 11, 3), 0.9999663480953022),
            ((5, 95, 100, 9800), 0.003967258407067359),
            ((8, 2, 90, 20000), 1.0646735026659876e-17),
            ((0, 5, 5, 5), 1.0),
        ] {
            let p = fisher_one_sided(a, b, c, d).expect("no margin is zero");
            assert!((p / exact - 1.0).abs() < 1e-9, "{a} {b} {c} {d}: {p:e} is not {exact:e}");
        }
    }

    #[test]
    fn an_empty_margin_has_no_answer() {
        assert_eq!(fisher_one_sided(0, 0, 3, 9), None);
        assert_eq!(fisher_one_sided(3, 9, 0, 0), None);
        assert_eq!(fisher_one_sided(0, 3, 0, 9), None);
        assert_eq!(fisher_one_sided(3, 0, 9, 0), None);
        assert_eq!(fisher_one_sided(u64::MAX, 1, 1, 1), None, "nor has a sum that no u64 holds");
    }

    #[test]
    fn large_tables_neither_overflow_nor_stall() {
        let big = 10_000_000;
        // Half of each fail: no difference, so about one half.
        let p = fisher_one_sided(big, big, big, big).expect("no margin is zero");
        assert!((p - 0.5).abs() < 1e-3, "{p}");
        // All against none: smaller than any f64.
        assert_eq!(fisher_one_sided(big, 0, 0, big), Some(0.0));
        assert_eq!(fisher_one_sided(0, big, big, 0), Some(1.0));
    }

    /// The probability by counting the ways, in integers: the smallest table's own definition.
    fn by_counting(a: u64, b: u64, c: u64, d: u64) -> f64 {
        let ways = |n: u64, k: u64| -> u128 {
            if k > n {
                return 0;
            }
            (0..k).fold(1, |ways, i| ways * u128::from(n - i) / u128::from(i + 1))
        };
        let (stale, other, failed) = (a + b, c + d, a + c);
        let tail: u128 =
            (a..=failed.min(stale)).map(|k| ways(stale, k) * ways(other, failed - k)).sum();
        tail as f64 / ways(stale + other, failed) as f64
    }

    proptest! {
        #[test]
        fn small_tables_agree_with_counting(a in 0u64..12, b in 0u64..12, c in 0u64..12, d in 0u64..12) {
            match fisher_one_sided(a, b, c, d) {
                None => prop_assert!(a + b == 0 || c + d == 0 || a + c == 0 || b + d == 0),
                Some(p) => prop_assert!((p - by_counting(a, b, c, d)).abs() < 1e-10),
            }
        }

        #[test]
        fn one_failure_more_among_the_stale_is_never_less_significant(
            a in 0u64..40, b in 1u64..40, c in 1u64..40, d in 0u64..40,
        ) {
            if let (Some(p), Some(q)) =
                (fisher_one_sided(a, b, c, d), fisher_one_sided(a + 1, b - 1, c - 1, d + 1))
            {
                prop_assert!(q <= p + 1e-12);
            }
        }
    }
}
