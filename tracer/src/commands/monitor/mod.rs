//! `tracer monitor`: traces this node for as long as it runs, and judges each rollout of the watched namespaces when the
//! last entry that it may have left is gone.

mod http;
mod metrics;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};

use self::http::Health;
use self::metrics::Metrics;
use super::tracing::{self, Outcomes};
use super::{record, units, watching};
use crate::cli::{Exit, note};
use crate::cluster::{Cluster, Remark, Scope, Update, Voice};
use crate::files::{Existing, TraceWriter};
use crate::kernel::Filter;
use crate::model::{Event, Origin};
use crate::monitor::{Judged, Monitor};
use crate::pipeline::HOLD_BACK;
use crate::report::words;
use crate::stream::Ordering;
use crate::sys::{clock, signals, stop::Stop};
use crate::verdict::{self, VerdictOutcome};

/// How long the loop waits for events before it looks after other things.
const WAIT: Duration = Duration::from_millis(50);

/// Options of `tracer monitor`
#[derive(Debug, Args)]
pub struct Options {
    /// A namespace whose Services and rollouts are watched; may be given more than once
    #[arg(long, value_name = "NAMESPACE", required_unless_present = "all_namespaces")]
    namespace: Vec<String>,

    /// Watch all namespaces
    #[arg(long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// Answer /metrics, /healthz and /readyz there [default: nothing listens]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// The memory for events of the last while; what does not fit is lost, and verdicts say so
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = units::ring)]
    buffer: u32,

    /// Keep the trace of each rollout that was judged in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Say nothing on the Deployments: no Event objects
    #[arg(long)]
    no_events: bool,

    /// How verdicts are printed
    #[arg(long, value_enum, default_value_t)]
    format: Format,

    #[command(flatten)]
    watching: watching::Options,

    #[command(flatten)]
    tracing: tracing::Options,

    /// A request is late if it started this long after the rollout was complete
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = units::duration)]
    late_after: Duration,
}

/// The forms of a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line each
    #[default]
    Text,
    /// A JSON report each, in a line
    Json,
}

/// Traces until someone interrupts. What has not been judged by then is judged as far as it came.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.tracing.check(None, Existing::Keep)?;
    if let Some(folder) = &options.keep {
        ensure!(folder.is_dir(), "{} is no folder: make it first", folder.display());
    }
    let metrics = Arc::new(Metrics::new());
    let health = Arc::new(Health::default());
    health.beat(clock::now());
    if let Some(listen) = options.listen {
        let listen = http::serve(listen, Arc::clone(&metrics), Arc::clone(&health))?;
        note(format_args!("listening on {listen}"));
    }
    let stop = Stop::default();
    signals::watch(&stop, || {}).context("catching signals")?;
    let settings = options.watching.settings(Scope::Namespaces(options.namespace.clone()));
    let (cluster, first) = Cluster::watch(settings, &stop, |what| {
        health.beat(clock::now());
        note(format_args!("{what}"));
    })?;
    let services = &first.addresses.services;
    let mut tracer = options.tracing.attach(services, Outcomes::Kernel)?;
    let mut filter = tracer.take_filter().context("the filter is there once")?;
    filter.expect(&first.addresses.backends)?;
    let origin = Origin::Record { command: tracing::command_line() };
    let mut place = record::place(services);
    place.notes.push(record::FROM_THE_KERNEL.to_owned());
    place.notes.extend(first.notes.iter().cloned());
    let header = tracing::header(origin, &tracer, place)?;
    let began = header.began;
    let (sender, events) = tracing::channel();
    let drain = tracing::drain(tracer, sender, stop.clone())?;
    let judging =
        verdict::Settings { late_after: options.late_after, ..verdict::Settings::default() };
    let most = usize::try_from(options.buffer).unwrap_or(usize::MAX);
    let mut watch = Watch {
        monitor: Monitor::new(header, judging, most),
        ordering: Ordering::new(HOLD_BACK),
        metrics: &metrics,
        health: &health,
        told: Told {
            voice: (!options.no_events).then(|| cluster.voice()),
            keep: options.keep.as_deref(),
            format: options.format,
        },
    };
    for event in first.at(began) {
        watch.take(event);
    }
    health.set_ready(true);
    note(format_args!(
        "watching {}; Ctrl-C ends it",
        words::counted(services.len() as u64, "address")
    ));
    let followed = watch.follow(&events, &cluster, &mut filter);
    stop.request();
    drain.join().map_err(|_| anyhow::anyhow!("the tracing thread panicked"))?.context("tracing")?;
    for update in cluster.finish() {
        if let Update::Event(event) = update {
            watch.take(*event);
        }
    }
    watch.end()?;
    followed?;
    Ok(Exit::Done)
}

/// What comes in, and what becomes of it.
struct Watch<'a> {
    monitor: Monitor,
    ordering: Ordering,
    metrics: &'a Metrics,
    health: &'a Health,
    told: Told<'a>,
}

impl Watch<'_> {
    fn take(&mut self, event: Event) {
        self.metrics.event(&event);
        self.ordering.push(event);
    }

    /// Until every sender is gone.
    fn follow(
        &mut self,
        events: &Receiver<Event>,
        cluster: &Cluster,
        filter: &mut Filter,
    ) -> anyhow::Result<()> {
        let mut next = clock::now();
        loop {
            match events.recv_timeout(WAIT) {
                Ok(event) => self.take(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = clock::now();
            if now < next {
                continue;
            }
            next = now + WAIT;
            self.health.beat(now);
            watching::take(cluster, filter, &mut |event| self.take(event))
                .context("following the Services")?;
            let Watch { monitor, ordering, .. } = self;
            ordering.release(now, &mut |_, event| monitor.accept(&event));
            let judged = monitor.tick(now);
            self.metrics.state(self.monitor.bytes(), self.monitor.open());
            self.tell(&judged)?;
        }
    }

    fn tell(&mut self, judged: &[Judged]) -> anyhow::Result<()> {
        for judged in judged {
            self.metrics.judged(judged);
            self.told.keep(&mut self.monitor, judged);
            self.told.say(judged)?;
        }
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<()> {
        let Watch { monitor, ordering, .. } = &mut self;
        ordering.flush(&mut |_, event| monitor.accept(&event));
        let judged = self.monitor.judge_open();
        self.tell(&judged)
    }
}

/// To whom verdicts are told.
struct Told<'a> {
    voice: Option<Voice>,
    keep: Option<&'a Path>,
    format: Format,
}

impl Told<'_> {
    fn say(&self, judged: &Judged) -> anyhow::Result<()> {
        let Judged { deployment, report, .. } = judged;
        let outcome = report.hypothesis.outcome;
        let sentence = format!(
            "{}: {} ({} requests, {} failed, {} of them late)",
            words::outcome_name(outcome),
            words::verdict(report),
            words::count(report.requests.total),
            words::count(report.requests.failed),
            words::count(report.requests.late),
        );
        let mut out = io::stdout().lock();
        match self.format {
            Format::Text => writeln!(out, "rollout of {deployment}: {sentence}"),
            Format::Json => serde_json::to_writer(&mut out, report)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(out)),
        }
        .and_then(|()| out.flush())
        .context("printing a verdict")?;
        drop(out);
        if let Some(voice) = self.voice.clone() {
            let remark = Remark {
                deployment: deployment.clone(),
                reason: reason(outcome),
                is_warning: report.requests.late > 0,
                sentence,
            };
            // The API server may take its time; tracing goes on.
            let said = move || {
                if let Err(error) = voice.say(remark) {
                    note(error);
                }
            };
            thread::Builder::new()
                .name("remark".to_owned())
                .spawn(said)
                .context("starting a thread")?;
        }
        Ok(())
    }

    /// A disk that is full costs a trace, not the monitor.
    fn keep(&self, monitor: &mut Monitor, judged: &Judged) {
        let Some(folder) = self.keep else { return };
        let name = judged.deployment.replace('/', "_");
        let path = folder.join(format!("{name}-{}.trace", judged.report.clock.began_unix as u64));
        let mut write = || -> anyhow::Result<()> {
            let mut writer = TraceWriter::create(&path, &judged.header, Existing::Keep)?;
            let mut failed = None;
            monitor.replay(judged, &mut |event| {
                if failed.is_none() {
                    failed = writer.append(event).err();
                }
            });
            match failed {
                Some(error) => Err(error.into()),
                None => Ok(writer.finish().map(drop)?),
            }
        };
        if let Err(error) = write() {
            let _ = fs::remove_file(&path);
            note(format_args!("the trace of {} is not kept: {error:#}", judged.deployment));
        }
    }
}

fn reason(outcome: VerdictOutcome) -> &'static str {
    match outcome {
        VerdictOutcome::Supported => "ReusedSourcePort",
        VerdictOutcome::Refuted => "LateFailuresOfAnotherCause",
        VerdictOutcome::NotObserved => "RolloutWithoutLateFailures",
        VerdictOutcome::Inconclusive => "RolloutNotJudged",
    }
}
