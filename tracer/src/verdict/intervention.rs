//! The intervention: does what was treated fail less than what was not?

use crate::correlate::{Intervened, Timeline, Trial};
use crate::model::{Intervention, LossSource};

use super::contrast::fisher_one_sided;

/// How unlikely a difference must be if the treatment did nothing.
const SIGNIFICANT: f64 = 0.01;
/// From here on the two groups are alike.
const ALIKE: f64 = 0.1;

/// What the last intervention says of the reused source port: whether it proves it, and why. None without
/// one.
pub(super) fn proof(timeline: &Timeline) -> Option<(Option<bool>, String)> {
    let intervened = timeline.interventions.last()?;
    let Intervened { seen, what, trials } = intervened;
    let count = |treated: bool, failed: bool| {
        let of = |trial: &&Trial| trial.treated == treated && trial.failed == failed;
        trials.iter().filter(of).count() as u64
    };
    let (untreated_failed, untreated_ok) = (count(false, true), count(false, false));
    let (treated_failed, treated_ok) = (count(true, true), count(true, false));
    let (untreated, treated) = (untreated_failed + untreated_ok, treated_failed + treated_ok);
    let (left, done) = words(what);
    let figures = format!(
        "the next connects on the ports of stale entries that were {left}: {untreated_failed} of {untreated} \
         failed; {done}: {treated_failed} of {treated}"
    );
    let lost = timeline.losses.iter().any(|loss| {
        let hides = matches!(loss.source, LossSource::Requests | LossSource::TraceFile);
        hides && loss.touches(seen.time, timeline.ended)
    });
    if lost {
        return Some((None, format!("{figures}; requests were lost, so this proves nothing")));
    }
    // The clearest that so many trials could have shown.
    let best = fisher_one_sided(untreated, 0, 0, treated);
    if best.is_none_or(|best| best >= SIGNIFICANT) {
        return Some((None, format!("{figures}; these are too few to tell")));
    }
    let p = fisher_one_sided(untreated_failed, untreated_ok, treated_failed, treated_ok);
    // Without a p-value all ended alike.
    let p = p.unwrap_or(1.0);
    let (proven, so) = if p < SIGNIFICANT {
        (Some(true), "the failures end with the entries")
    } else if p > ALIKE {
        (Some(false), "without the entries it is no different")
    } else {
        (None, "the difference is too small to tell")
    };
    let p = if p < SIGNIFICANT { format!("{p:.2e}") } else { format!("{p:.2}") };
    Some((proven, format!("{figures} (p = {p}): {so}")))
}

/// What was not treated, and what was.
fn words(what: &Intervention) -> (&'static str, &'static str) {
    match what {
        Intervention::Flush { .. } => ("left", "deleted"),
        Intervention::Timeout { .. } => ("alive under the new timer", "gone by it"),
    }
}

#[cfg(test)]
mod tests {
    use crate::correlate::testing::{rollout, scene, timeline};
    use expect_test::{Expect, expect};

    /// Flushes ten entries, five of them deleted, and lets their ports come round.
    fn flush(treated: &str, untreated: &str, ports: u32) -> String {
        let mut text = String::from("20s flush");
        for port in 0..ports {
            text += &format!(" {}{}", 40_000 + 2 * port, if port % 2 == 0 { "+" } else { "-" });
        }
        for port in 0..ports {
            let end = if port % 2 == 0 { treated } else { untreated };
            text += &format!("\n{}s request {} {} {end}", 30 + port, 100 + port, 40_000 + 2 * port);
        }
        text
    }

    fn check(text: &str, expected: Expect) {
        let said = super::proof(&timeline(&scene(&rollout(text))));
        let said = said.map(|(proven, reason)| format!("{proven:?}: {reason}"));
        expected.assert_eq(&said.unwrap_or_default());
    }

    #[test]
    fn without_an_intervention_nothing_is_proven() {
        check("", expect![[""]]);
    }

    #[test]
    fn failures_that_end_with_the_entry_prove_it() {
        check(
            &flush("ok 50ms", "connect-timeout 3s", 12),
            expect![
                "Some(true): the next connects on the ports of stale entries that were left: 6 of 6 failed; deleted: 0 of 6 (p = 1.08e-3): the failures end with the entries"
            ],
        );
    }

    #[test]
    fn failures_that_go_on_without_the_entry_disprove_it() {
        check(
            &flush("connect-timeout 3s", "connect-timeout 3s", 12),
            expect![
                "Some(false): the next connects on the ports of stale entries that were left: 6 of 6 failed; deleted: 6 of 6 (p = 1.00): without the entries it is no different"
            ],
        );
        check(
            &flush("ok 50ms", "ok 50ms", 12),
            expect![
                "Some(false): the next connects on the ports of stale entries that were left: 0 of 6 failed; deleted: 0 of 6 (p = 1.00): without the entries it is no different"
            ],
        );
    }

    #[test]
    fn few_trials_prove_nothing() {
        check(
            &flush("ok 50ms", "connect-timeout 3s", 6),
            expect![
                "None: the next connects on the ports of stale entries that were left: 3 of 3 failed; deleted: 0 of 3; these are too few to tell"
            ],
        );
    }

    #[test]
    fn lost_requests_prove_nothing() {
        let lost = format!(
            "{}\n50s lost 3 requests since 40s",
            flush("ok 50ms", "connect-timeout 3s", 12)
        );
        check(
            &lost,
            expect![
                "None: the next connects on the ports of stale entries that were left: 6 of 6 failed; deleted: 0 of 6; requests were lost, so this proves nothing"
            ],
        );
    }

    #[test]
    fn what_comes_after_the_entry_would_have_expired_is_no_trial() {
        check(
            "20s flush 40000- 40002+\n150s request 1 40000 ok 50ms",
            expect![
                "None: the next connects on the ports of stale entries that were left: 0 of 0 failed; deleted: 0 of 0; these are too few to tell"
            ],
        );
    }

    /// Entries are made from 30 s on; the timer is 10 s instead of 120 s.
    #[test]
    fn a_shorter_timer_that_ends_the_failures_proves_it() {
        let mut text = String::from("20s timeout 120s 10s");
        for nth in 0..6 {
            let port = 40_000 + 2 * nth;
            for (at, end) in
                [(30, "connect-timeout 3s"), (35, "connect-timeout 3s"), (60, "ok 50ms")]
            {
                text += &format!("\n{}s request {} {port} {end}", at + nth / 2, at * 100 + nth);
            }
        }
        check(
            &text,
            expect![
                "Some(true): the next connects on the ports of stale entries that were alive under the new timer: 6 of 6 failed; gone by it: 0 of 6 (p = 1.08e-3): the failures end with the entries"
            ],
        );
    }
}
