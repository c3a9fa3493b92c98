//! The intervention: does what was treated fail less than what was not?

use crate::correlate::{Intervened, Timeline};
use crate::model::{Intervention, LossSource};

use super::contrast::fisher_one_sided;
use super::late::Rollouts;

/// How unlikely a difference must be if the treatment did nothing.
const SIGNIFICANT: f64 = 0.01;
/// From here on the two groups are alike.
const ALIKE: f64 = 0.1;

/// What the last intervention says of the reused source port: whether it proves it, and why. None without
/// one.
pub(super) fn proof(timeline: &Timeline, rollouts: &Rollouts) -> Option<(Option<bool>, String)> {
    let intervened = timeline.interventions.last()?;
    let Intervened { seen, what, .. } = intervened;
    let [prone, spared] = groups(intervened, rollouts);
    let Words { prone: of_prone, spared: of_spared, so, not_so } = words(what);
    let figures = format!(
        "{of_prone}: {} of {} failed; {of_spared}: {} of {}",
        prone.failed,
        prone.all(),
        spared.failed,
        spared.all()
    );
    let lost = timeline.losses.iter().any(|loss| {
        let hides = matches!(loss.source, LossSource::Requests | LossSource::TraceFile);
        hides && loss.touches(seen.time, timeline.ended)
    });
    if lost {
        return Some((None, format!("{figures}; requests were lost, so this proves nothing")));
    }
    if !clearest(what, prone, spared).is_some_and(|clearest| clearest < SIGNIFICANT) {
        return Some((None, format!("{figures}; these are too few to tell")));
    }
    let p = fisher_one_sided(prone.failed, prone.ok, spared.failed, spared.ok);
    // Without a p-value all ended alike.
    let p = p.unwrap_or(1.0);
    let (proven, so) = if p < SIGNIFICANT {
        (Some(true), so)
    } else if p > ALIKE && is_alike(what, prone, spared) {
        (Some(false), not_so)
    } else {
        (None, "the difference is too small to tell")
    };
    let p = if p < SIGNIFICANT { format!("{p:.2e}") } else { format!("{p:.2}") };
    Some((proven, format!("{figures} (p = {p}): {so}")))
}

/// How the trials of one kind ended.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    failed: u64,
    ok: u64,
}

impl Group {
    fn all(self) -> u64 {
        self.failed + self.ok
    }
}

/// The trials of which more fail if reused source ports are to blame, and the others.
fn groups(intervened: &Intervened, rollouts: &Rollouts) -> [Group; 2] {
    let Intervened { what, trials, .. } = intervened;
    let is_of_ports = matches!(what, Intervention::Ports { .. });
    // Ports that come round all the time are a treatment that makes it worse.
    let is_worse = matches!(what, Intervention::Ports { again: true, .. });
    let mut groups = [Group::default(); 2];
    // What fails early fails on any port.
    for trial in trials.iter().filter(|trial| !is_of_ports || rollouts.is_late(trial.start)) {
        let group = &mut groups[usize::from(trial.treated != is_worse)];
        *(if trial.failed { &mut group.failed } else { &mut group.ok }) += 1;
    }
    groups
}

/// The p-value of the clearest that so many trials could have shown. Of stale entries each could have failed; of any
/// requests only as many as did.
fn clearest(what: &Intervention, prone: Group, spared: Group) -> Option<f64> {
    let most = match what {
        Intervention::Flush { .. } | Intervention::Timeout { .. } => prone.all(),
        Intervention::Ports { .. } => prone.all().min(prone.failed + spared.failed),
    };
    fisher_one_sided(most, prone.all() - most, 0, spared.all())
}

/// Whether a p-value without significance means that there is no difference. Any requests may fail of something else
/// besides, on all ports alike, which hides a small difference: then the others must fail as often.
fn is_alike(what: &Intervention, prone: Group, spared: Group) -> bool {
    match what {
        Intervention::Flush { .. } | Intervention::Timeout { .. } => true,
        Intervention::Ports { .. } => spared.failed * prone.all() >= prone.failed * spared.all(),
    }
}

/// How an intervention is told.
struct Words {
    /// Of which connects more should fail.
    prone: &'static str,
    /// Of which fewer.
    spared: &'static str,
    /// What it means if they do.
    so: &'static str,
    /// And if they don't.
    not_so: &'static str,
}

fn words(what: &Intervention) -> Words {
    let of_entries = |prone, spared| Words {
        prone,
        spared,
        so: "the failures end with the entries",
        not_so: "without the entries it is no different",
    };
    match what {
        Intervention::Flush { .. } => {
            of_entries("the next connects on the ports of stale entries that were left", "deleted")
        }
        Intervention::Timeout { .. } => of_entries(
            "the next connects on the ports of stale entries that were alive under the new timer",
            "gone by it",
        ),
        Intervention::Ports { again: false, .. } => Words {
            prone: "the late connects from ports that the kernel chose and that come round",
            spared: "from ports that were used once",
            so: "where no port comes round, less fails",
            not_so: "where no port comes round, it is no different",
        },
        Intervention::Ports { again: true, .. } => Words {
            prone: "the late connects from a few ports that come round all the time",
            spared: "from ports that the kernel chose",
            so: "where ports come round more often, more fails",
            not_so: "where ports come round more often, it is no different",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
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
        let timeline = timeline(&scene(&rollout(text)));
        let said = super::proof(&timeline, &Rollouts::new(&timeline, &Settings::default()));
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

    /// Half of the client chooses its ports itself; of each half's late requests, about as many, so many fail.
    fn ports(order: &str, own: u32, kernel: u32) -> String {
        let mut text =
            format!("1s ports 30000 31000 {order}\n5s request 50 30000 connect-timeout 3s");
        for nth in 0..150 {
            for (port, failing) in [(30_000, own), (40_000, kernel)] {
                let end = if nth < failing { "connect-timeout 3s" } else { "ok 50ms" };
                // The rollout's own load is the kernel's half.
                if port == 30_000 || nth < failing {
                    text += &format!(
                        "\n{}ms request {} {} {end}",
                        30_000 + 500 * nth,
                        port + nth,
                        port + nth
                    );
                }
            }
        }
        text
    }

    #[test]
    fn failures_that_only_ports_that_come_round_have_prove_it() {
        check(
            &ports("once", 0, 9),
            expect![
                "Some(true): the late connects from ports that the kernel chose and that come round: 9 of 141 failed; from ports that were used once: 0 of 150 (p = 1.29e-3): where no port comes round, less fails"
            ],
        );
        check(
            &ports("again", 19, 1),
            expect![
                "Some(true): the late connects from a few ports that come round all the time: 19 of 150 failed; from ports that the kernel chose: 1 of 133 (p = 3.45e-5): where ports come round more often, more fails"
            ],
        );
    }

    #[test]
    fn failures_that_ports_used_once_have_as_well_disprove_it() {
        check(
            &ports("once", 8, 7),
            expect![
                "Some(false): the late connects from ports that the kernel chose and that come round: 7 of 139 failed; from ports that were used once: 8 of 150 (p = 0.65): where no port comes round, it is no different"
            ],
        );
        check(
            &ports("again", 7, 8),
            expect![
                "Some(false): the late connects from a few ports that come round all the time: 7 of 150 failed; from ports that the kernel chose: 8 of 140 (p = 0.75): where ports come round more often, it is no different"
            ],
        );
        // Something else may have been at work besides.
        check(
            &ports("once", 5, 9),
            expect![
                "None: the late connects from ports that the kernel chose and that come round: 9 of 141 failed; from ports that were used once: 5 of 150 (p = 0.17): the difference is too small to tell"
            ],
        );
    }

    #[test]
    fn few_failures_prove_nothing_on_any_ports() {
        check(
            &ports("once", 0, 5),
            expect![
                "None: the late connects from ports that the kernel chose and that come round: 5 of 137 failed; from ports that were used once: 0 of 150; these are too few to tell"
            ],
        );
        check(
            &ports("once", 0, 0),
            expect![
                "None: the late connects from ports that the kernel chose and that come round: 0 of 132 failed; from ports that were used once: 0 of 150; these are too few to tell"
            ],
        );
    }

    #[test]
    fn where_requests_were_lost_ports_prove_nothing() {
        let lost = format!("{}\n60s lost 3 requests since 40s", ports("once", 0, 9));
        check(
            &lost,
            expect![
                "None: the late connects from ports that the kernel chose and that come round: 9 of 141 failed; from ports that were used once: 0 of 150; requests were lost, so this proves nothing"
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
