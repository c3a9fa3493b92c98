//! The options of `tracer lab` that change something on purpose.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::Client;
use crate::commands::units;
use crate::lab::{Lab, LabError, Sink};
use crate::loadgen::OwnPorts;
use crate::model::{Event, EventKind, Intervention};
use crate::sys::clock;
use crate::sys::stop::Stop;

/// The first port that needs no privilege.
const FIRST_PORT: u16 = 1_024;

/// The stream of the random choice of workers; the lab's own have other numbers.
const STREAM: u64 = u64::MAX - 1;

/// From a change of the timer to the rollout.
const BEFORE_ROLLOUT: Duration = Duration::from_secs(2);

/// What is changed on purpose.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// Change one thing, and compare what was treated with what was not: flush deletes a random half of the
    /// stale entries some time after the rollout, timeout=SECONDS sets the SYN_SENT timer before it; with
    /// ports=distinct a random half of the workers uses each source port once, with ports=narrow:N it uses N source
    /// ports again and again
    #[arg(long, value_name = "flush|timeout=SECONDS|ports=distinct|ports=narrow:N")]
    intervene: Option<What>,

    /// How long after the rollout is complete the entries are deleted [default: 10s, with --quick 2s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "intervene")]
    intervene_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Flush,
    Timeout(Duration),
    /// Each source port once.
    DistinctPorts,
    /// So many source ports again and again.
    NarrowPorts(u16),
}

/// What there is.
const THERE_ARE: &str = "there are: flush, timeout=SECONDS, ports=distinct, ports=narrow:N";

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        match text.split_once('=') {
            None if text == "flush" => Ok(What::Flush),
            Some(("timeout", seconds)) => match seconds.parse() {
                Ok(seconds @ 1..=86_400) => Ok(What::Timeout(Duration::from_secs(seconds))),
                _ => Err("the timer is 1 to 86400 whole seconds, such as timeout=20".to_owned()),
            },
            Some(("ports", "distinct")) => Ok(What::DistinctPorts),
            Some(("ports", ports)) if ports.starts_with("narrow") => {
                match ports.strip_prefix("narrow:").map(str::parse) {
                    Some(Ok(count @ 10..=10_000)) => Ok(What::NarrowPorts(count)),
                    _ => Err("it takes 10 to 10000 ports, such as ports=narrow:200".to_owned()),
                }
            }
            _ => Err(THERE_ARE.to_owned()),
        }
    }
}

impl Options {
    /// Refuses what contradicts itself, or this client.
    pub(super) fn check(&self, client: Client, workers: u32) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.intervene_after.is_none() || self.intervene == Some(What::Flush),
            "--intervene-after is for --intervene flush: everything else is changed before the rollout"
        );
        if let Some(What::DistinctPorts | What::NarrowPorts(_)) = self.intervene {
            anyhow::ensure!(
                client == Client::Fresh,
                "--intervene ports compares connections: it is for --client fresh"
            );
            anyhow::ensure!(
                workers >= 2,
                "--intervene ports compares one half of the workers with the other: it needs --workers 2 or more"
            );
        }
        if let Some(What::NarrowPorts(count)) = self.intervene {
            anyhow::ensure!(
                u32::from(count) >= workers,
                "ports=narrow:{count} is less than one port for each of {workers} workers"
            );
        }
        Ok(())
    }

    /// The ports that a random half of the workers chooses itself, if that is what is wanted, and the event that tells of
    /// it.
    pub(super) fn ports(&self, lab: &Lab, workers: u32) -> Option<(OwnPorts, Event)> {
        let (count, again) = match self.intervene? {
            What::DistinctPorts => (None, false),
            What::NarrowPorts(count) => (Some(count), true),
            What::Flush | What::Timeout(_) => return None,
        };
        // Next to the kernel's, so that none of them is one of those.
        let last = lab.ports().start() - 1;
        let first = count.map_or(FIRST_PORT, |count| last + 1 - count);
        let mut all: Vec<u32> = (0..workers).collect();
        let mut random = ChaCha8Rng::seed_from_u64(lab.seed());
        random.set_stream(STREAM);
        all.shuffle(&mut random);
        all.truncate(workers as usize / 2);
        let own = OwnPorts { workers: all.into_iter().collect(), range: first..=last, again };
        let netns = lab.client_netns().id();
        let what = Intervention::Ports { netns, first, last, again };
        Some((own, Event { time: clock::now(), kind: EventKind::Intervention(what) }))
    }

    /// Waits until the rollout is to start, `after` from now, and does on the way what is to be done before.
    /// False if it is over.
    pub(super) fn before(
        &self,
        lab: &Lab,
        after: Duration,
        sink: Sink<'_>,
        over: &Stop,
    ) -> Result<bool, LabError> {
        let Some(What::Timeout(timeout)) = self.intervene else { return Ok(over.wait(after)) };
        let first = after.saturating_sub(BEFORE_ROLLOUT);
        if !over.wait(first) {
            return Ok(false);
        }
        lab.set_syn_sent_timeout(timeout, sink)?;
        Ok(over.wait(after - first))
    }

    /// Does, after a rollout, what is to be done then.
    pub(super) fn after(
        &self,
        lab: &Lab,
        is_quick: bool,
        sink: Sink<'_>,
        over: &Stop,
    ) -> Result<(), LabError> {
        let usual = Duration::from_secs(if is_quick { 2 } else { 10 });
        let after = self.intervene_after.unwrap_or(usual);
        let complete = lab.truth().rollout_finished;
        let since = complete.map_or(Duration::ZERO, |time| clock::now().since(time));
        if self.intervene == Some(What::Flush) && over.wait(after.saturating_sub(since)) {
            lab.flush(sink)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn interventions_are_named() {
        assert_eq!("flush".parse(), Ok(What::Flush));
        assert_eq!("timeout=20".parse(), Ok(What::Timeout(Duration::from_secs(20))));
        assert_eq!("ports=distinct".parse(), Ok(What::DistinctPorts));
        assert_eq!("ports=narrow:200".parse(), Ok(What::NarrowPorts(200)));
        let refused = [
            "flash",
            "timeout",
            "timeout=0",
            "flush=2",
            "ports=narrow",
            "ports=narrow:9",
            "ports=wide",
        ]
        .map(|text| text.parse::<What>().expect_err("it is refused"));
        expect![[r#"
            there are: flush, timeout=SECONDS, ports=distinct, ports=narrow:N
            there are: flush, timeout=SECONDS, ports=distinct, ports=narrow:N
            the timer is 1 to 86400 whole seconds, such as timeout=20
            there are: flush, timeout=SECONDS, ports=distinct, ports=narrow:N
            it takes 10 to 10000 ports, such as ports=narrow:200
            it takes 10 to 10000 ports, such as ports=narrow:200
            there are: flush, timeout=SECONDS, ports=distinct, ports=narrow:N"#]]
        .assert_eq(&refused.join("\n"));
    }
}
