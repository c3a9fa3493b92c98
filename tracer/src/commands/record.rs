//! `tracer record`: traces this node, to a file if wanted, and says the verdict.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::tracing::{self, Outcomes, Place};
use super::units::ServiceName;
use super::{clients, judging, live, screen, units, watching};
use crate::cli::{Exit, note};
use crate::cluster::{Cluster, First, Scope};
use crate::model::{Netns, NetnsRole, Origin};
use crate::pipeline::Pipeline;
use crate::sys::netns;
use crate::sys::{clock, signals, stop::Stop, sysctl};

/// What the report says of its requests.
pub(super) const FROM_THE_KERNEL: &str = "there is no request log: a request here is a connect, its outcome is what the \
    kernel saw of its socket (established; refused, unreachable, timed out or given up; reset). What was then asked and \
    answered is not known: answers that were cut short, late or wrong count as good";

/// Options of `tracer record`
#[derive(Debug, Args)]
pub struct Options {
    /// A Service to trace: by its name in the cluster, NAMESPACE/NAME, whose API then tells addresses, endpoints, pods
    /// and rollouts; or by address and port in front of NAT, more than once if wanted
    #[arg(long, value_name = "SERVICE", required = true, value_parser = units::service)]
    service: Vec<ServiceName>,

    /// Record the trace to this file, for `tracer replay`
    #[arg(value_name = "FILE")]
    trace: Option<PathBuf>,

    /// How long to trace [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    duration: Option<Duration>,

    #[command(flatten)]
    clients: clients::Options,

    #[command(flatten)]
    watching: watching::Options,

    #[command(flatten)]
    tracing: tracing::Options,

    #[command(flatten)]
    live: live::Options,

    #[command(flatten)]
    judging: judging::Options,
}

/// Traces until the duration is over or someone interrupts, then says the verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    options.live.check()?;
    options.judging.check_apart(options.trace.as_deref())?;
    options.tracing.check(options.trace.as_deref(), options.judging.existing())?;
    let scope = options.scope()?;
    let stop = Stop::default();
    signals::watch(&stop, screen::give_back).context("catching signals")?;
    let watched = scope.map(|scope| {
        let settings = options.watching.settings(scope);
        Cluster::watch(settings, &stop, |what| note(format_args!("{what}")))
    });
    let (cluster, first) = match watched.transpose()? {
        Some((cluster, first)) => (Some(cluster), first),
        None => (None, First::default()),
    };
    let mut clients = options.clients.find(cluster.is_some())?;
    let workloads = clients::Workloads::default();
    let mut services = options.addresses();
    services.extend(&first.addresses.services);
    let mut tracer = options.tracing.attach(&services, Outcomes::Kernel)?;
    let mut filter = tracer.take_filter().context("the filter is there once")?;
    filter.expect(&first.addresses.backends)?;
    let origin = Origin::Record { command: tracing::command_line() };
    let mut place = place(&services);
    place.notes.push(FROM_THE_KERNEL.to_owned());
    place.notes.extend(clients.text());
    place.notes.extend(first.notes.iter().cloned());
    let header = tracing::header(origin, &tracer, place)?;
    let settings = options.judging.settings(&header)?;
    let record =
        options.tracing.create(options.trace.as_deref(), &header, options.judging.existing());
    let mut pipeline = Pipeline::new(&header, record);
    for event in first.at(header.began) {
        clients.learn(&event);
        pipeline.accept(event);
    }
    let (sender, events) = tracing::channel();
    let drain = tracing::drain(tracer, sender, stop.clone())?;
    note(format_args!("tracing {}; Ctrl-C ends it", listed(&services)));
    let live = options.live.start(&header, &settings, options.duration, &stop)?;
    let end = options.duration.map(|duration| clock::now() + duration);
    let mut followed = Ok(());
    let (clients, workloads) = (RefCell::new(clients), RefCell::new(workloads));
    tracing::pump(
        &events,
        &mut pipeline,
        |event| {
            let clients = clients.borrow();
            let is_wanted = clients.wants(event);
            if is_wanted {
                workloads.borrow_mut().see(event);
            }
            is_wanted
        },
        |now, pipeline| {
            live.beat(pipeline);
            if let (Some(cluster), Ok(())) = (&cluster, &followed) {
                let sink = &mut |event| {
                    clients.borrow_mut().learn(&event);
                    pipeline.accept(event);
                };
                followed = watching::take(cluster, &mut filter, sink);
            }
            for event in workloads.borrow_mut().tell(now, cluster.as_ref()) {
                pipeline.accept(event);
            }
            if followed.is_err() || end.is_some_and(|end| now >= end) {
                stop.request();
            }
        },
    );
    drop(live);
    drain.join().map_err(|_| anyhow::anyhow!("the tracing thread panicked"))?.context("tracing")?;
    followed.context("following the Service's addresses")?;
    for update in cluster.map(Cluster::finish).into_iter().flatten() {
        watching::apply(update, &mut filter, &mut |event| pipeline.accept(event))?;
    }
    let (timeline, recorded) = pipeline.finish(clock::now());
    let exit = options.judging.say(&header, &timeline, &settings)?;
    recorded.context("the verdict is of the whole run, but the trace file is cut short")?;
    Ok(exit)
}

impl Options {
    /// What of a cluster is to be watched, if anything is.
    fn scope(&self) -> anyhow::Result<Option<Scope>> {
        match self.service.as_slice() {
            [ServiceName::Named { namespace, name }] => {
                let (namespace, name) = (namespace.clone(), name.clone());
                Ok(Some(Scope::Service { namespace, name }))
            }
            several if several.iter().all(|one| matches!(one, ServiceName::Address(_))) => Ok(None),
            _ => bail!(
                "one Service by its name, or several by their addresses: `tracer monitor` watches many"
            ),
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let address = |service: &ServiceName| match service {
            ServiceName::Address(address) => Some(*address),
            ServiceName::Named { .. } => None,
        };
        self.service.iter().filter_map(address).collect()
    }
}

/// The namespaces of this machine with their timers. Which of them is the client's node shows in the trace: there
/// the Service's entries are.
pub(super) fn place(services: &[SocketAddr]) -> Place {
    let mut place = Place { services: services.to_vec(), ..Place::default() };
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

fn listed(services: &[SocketAddr]) -> String {
    services.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
