//! The options of `tracer lab` that let the client ask for the Service by its name.

use std::time::Duration;

use clap::Args;

use crate::commands::load::ResolveName;
use crate::commands::units;
use crate::lab::Dns;
use crate::loadgen::Resolve;

/// Whether the client asks by name, and how the lab's DNS server behaves.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub(super) struct Options {
    /// Let the client ask for the Service by its name, of a DNS server of the lab [default: it knows the address]
    #[arg(long, value_enum, conflicts_with = "control")]
    resolve: Option<ResolveName>,

    /// With --resolve: how long the DNS server takes to answer
    #[arg(
        long, value_name = "DURATION", default_value = "0s", requires = "resolve", value_parser = units::duration
    )]
    dns_delay: Duration,

    /// With --resolve: the probability that the DNS server does not answer a question
    #[arg(
        long, value_name = "0..1", default_value = "0", requires = "resolve", value_parser = units::probability
    )]
    dns_loss: f64,
}

impl Options {
    /// The DNS server; none if the client knows the address.
    pub(super) fn dns(&self) -> Option<Dns> {
        self.resolve.map(|_| Dns { delay: self.dns_delay, loss: self.dns_loss })
    }

    /// When the name is resolved.
    pub(super) fn resolve(&self) -> Resolve {
        self.resolve.map_or(Resolve::Each, ResolveName::resolve)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: super::super::Options,
    }

    fn parse(line: &str) -> Result<Options, String> {
        let words = std::iter::once("lab").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(line.options.naming)
    }

    #[test]
    fn there_is_a_dns_server_only_for_a_client_that_asks_it() {
        assert_eq!(parse("").expect("it is possible").dns(), None);
        let options = parse("--resolve once --dns-delay 200ms --dns-loss 0.1").expect("possible");
        let dns = Dns { delay: Duration::from_millis(200), loss: 0.1 };
        assert_eq!((options.dns(), options.resolve()), (Some(dns), Resolve::Once));
        for wrong in [
            "--dns-delay 200ms",
            "--dns-loss 0.1",
            "--resolve often",
            "--resolve each --dns-loss 1.5",
            "--resolve each --control no-rollout",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
