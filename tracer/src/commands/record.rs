//! `tracer record`: traces this node, to a file if wanted, and says the verdict.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;

use super::tracing::{self, Place};
use super::{judging, units};
use crate::cli::{Exit, note};
use crate::model::{Netns, NetnsRole, Origin};
use crate::pipeline::Pipeline;
use crate::sys::netns;
use crate::sys::{clock, signals, stop::Stop, sysctl};

/// Options of `tracer record`
#[derive(Debug, Args)]
pub struct Options {
    /// A Service to trace, as the address and port in front of NAT; may be given more than once
    #[arg(long, value_name = "ADDRESS:PORT", required = true, value_parser = units::endpoint)]
    service: Vec<SocketAddr>,

    /// Record the trace to this file, for `tracer replay`
    #[arg(value_name = "FILE")]
    trace: Option<PathBuf>,

    /// How long to trace [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    duration: Option<Duration>,

    #[command(flatten)]
    tracing: tracing::Options,

    #[command(flatten)]
    judging: judging::Options,
}

/// Traces until the duration is over or someone interrupts, then says the verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    options.tracing.check(options.trace.as_deref())?;
    let stop = Stop::default();
    signals::watch(&stop, || {}).context("catching signals")?;
    let tracer = options.tracing.attach(&options.service)?;
    let origin = Origin::Record { command: tracing::command_line() };
    let header = tracing::header(origin, &tracer, options.place())?;
    let settings = options.judging.settings(&header)?;
    let record = options.tracing.create(options.trace.as_deref(), &header);
    let mut pipeline = Pipeline::new(&header, record);
    let (sender, events) = tracing::channel();
    let drain = tracing::drain(tracer, sender, stop.clone())?;
    note(format_args!("tracing {}; Ctrl-C ends it", services(&options.service)));
    let end = options.duration.map(|duration| clock::now() + duration);
    tracing::pump(
        &events,
        &mut pipeline,
        |_| {},
        |now| {
            if end.is_some_and(|end| now >= end) {
                stop.request();
            }
        },
    );
    drain.join().map_err(|_| anyhow::anyhow!("the tracing thread panicked"))?.context("tracing")?;
    let (timeline, recorded) = pipeline.finish();
    let exit = options.judging.say(&header, &timeline, &settings)?;
    recorded.context("the verdict is of the whole run, but the trace file is cut short")?;
    Ok(exit)
}

impl Options {
    /// The namespaces of this machine with their timers. Which of them is the client's node shows in the
    /// trace: there the Service's entries are.
    fn place(&self) -> Place {
        let mut place = Place { services: self.service.clone(), ..Place::default() };
        for netns in netns::visible() {
            // One that has gone since it was listed has no timers to tell and makes no entries.
            if let Ok(sysctls) = sysctl::values(&netns, &sysctl::OF_INTEREST) {
                place.sysctls.extend(sysctls);
                let name = netns.name().to_owned();
                place.netns.push(Netns { id: netns.id(), name, role: NetnsRole::Other });
            }
        }
        place
    }
}

fn services(services: &[SocketAddr]) -> String {
    services.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
