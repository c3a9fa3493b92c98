//! The options of `tracer lab` that change something on purpose.

use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::commands::units;
use crate::lab::{Lab, LabError, Sink};
use crate::sys::stop::Stop;

/// From a change of the timer to the rollout.
const BEFORE_ROLLOUT: Duration = Duration::from_secs(2);

/// What is changed on purpose.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// Change one thing, and compare what was treated with what was not: flush deletes a random half of the
    /// stale entries some time after the rollout, timeout=SECONDS sets the SYN_SENT timer before it
    #[arg(long, value_name = "flush|timeout=SECONDS")]
    intervene: Option<What>,

    /// How long after the rollout is complete the entries are deleted [default: 10s, with --quick 2s]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "intervene")]
    intervene_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Flush,
    Timeout(Duration),
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        match text.split_once('=') {
            None if text == "flush" => Ok(What::Flush),
            Some(("timeout", seconds)) => match seconds.parse() {
                Ok(seconds @ 1..=86_400) => Ok(What::Timeout(Duration::from_secs(seconds))),
                _ => Err("the timer is 1 to 86400 whole seconds, such as timeout=20".to_owned()),
            },
            _ => Err("there are: flush, timeout=SECONDS".to_owned()),
        }
    }
}

impl Options {
    /// Refuses what contradicts itself.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let is_timeout = matches!(self.intervene, Some(What::Timeout(_)));
        anyhow::ensure!(
            self.intervene_after.is_none() || !is_timeout,
            "--intervene-after is for --intervene flush: the timer is set before the rollout"
        );
        Ok(())
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
        let since = complete.map_or(Duration::ZERO, |time| crate::sys::clock::now().since(time));
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
        let refused = ["flash", "timeout", "timeout=0", "flush=2"]
            .map(|text| text.parse::<What>().expect_err("it is refused"));
        expect![[r#"
            there are: flush, timeout=SECONDS
            there are: flush, timeout=SECONDS
            the timer is 1 to 86400 whole seconds, such as timeout=20
            there are: flush, timeout=SECONDS"#]]
        .assert_eq(&refused.join("\n"));
    }
}
