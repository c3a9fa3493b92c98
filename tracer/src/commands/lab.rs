//! `tracer lab`: the built-in cluster, the load generator and the tracer, together.

mod cluster;
mod intervene;

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::tracing::Place;
use super::{judging, tracing, units};
use crate::cli::{Exit, note};
use crate::correlate::Timeline;
use crate::files::FileError;
use crate::kernel::KernelError;
use crate::kernel::capability::Capabilities;
use crate::lab::truth::{ClientRow, Truth};
use crate::lab::{APP, Lab, LabError, LabSettings};
use crate::loadgen::Mode;
use crate::loadgen::client::{self, ClientError, ClientSettings};
use crate::model::{Event, EventKind, Origin, RequestEnded, TraceHeader};
use crate::pipeline::Pipeline;
use crate::sys::netns::NetnsError;
use crate::sys::{owner, signals, stop::Stop};
use crate::verdict;

/// When the rollout starts, counted from the load's beginning.
const ROLLOUT_AFTER: Duration = Duration::from_secs(5);

/// How long a run is without `--duration`.
const DURATION: Duration = Duration::from_secs(170);
/// The same with `--quick`: the rollout's 5 + 10 s, the shortened timer, and time to see that it is over.
const QUICK_DURATION: Duration = Duration::from_secs(42);

/// Options of `tracer lab`
#[derive(Debug, Args)]
pub struct Options {
    #[command(flatten)]
    cluster: cluster::Options,

    #[command(flatten)]
    intervene: intervene::Options,

    /// How long the load lasts; the rollout starts 5 s in [default: 170s, with --quick 42s]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    duration: Option<Duration>,

    /// Whose connection a request of the client uses
    #[arg(long, value_enum, default_value_t)]
    client: Client,

    /// The client's workers: connections at a time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    workers: u32,

    /// The client's timeout for a request
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = units::positive)]
    timeout: Duration,

    /// Where the random choices come from [default: another one each time, printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Record the trace to this file, for `tracer replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Write what the lab itself knows of the run, as JSON, to hold the verdict against it
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,

    #[command(flatten)]
    tracing: tracing::Options,

    #[command(flatten)]
    judging: judging::Options,
}

/// Builds the lab, runs the experiment in it, takes it down and says the verdict.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    check_account()?;
    options.tracing.check(options.record.as_deref())?;
    let truth = options.truth.as_deref().map(TruthFile::create).transpose()?;
    let stop = Stop::default();
    let hurry = || {
        owner::sweep_own();
        note("interrupted again; the lab is taken down, there is no verdict");
    };
    signals::watch(&stop, hurry).context("catching signals")?;
    let settings = options.lab_settings()?;
    let progress = Progress::new(options.duration());
    progress.say("building the lab");
    let lab = Lab::build(&settings, &stop).map_err(|error| match error {
        LabError::Stopped => {
            anyhow::anyhow!("interrupted before the lab stood; what was built is taken down")
        }
        other => other.into(),
    })?;
    let run = options.experiment(&lab, &stop, &progress);
    progress.say("taking the lab down");
    let down = lab.teardown();
    progress.end();
    let run = run?;
    down?;
    if stop.is_requested() {
        note("interrupted; the lab is taken down, the verdict is of what was traced");
    }
    let exit = options.judging.say(&run.header, &run.timeline, &run.judging)?;
    let recorded =
        run.recorded.context("the verdict is of the whole run, but the trace file is cut short");
    // Both files are wanted, so what is wrong with one must not cost the other.
    if let (Some(file), Some(truth)) = (truth, &run.truth) {
        file.write(truth)?;
    }
    recorded?;
    Ok(exit)
}

/// Whether this account may build a lab.
fn check_account() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LabError::NotRoot.into());
    }
    // Where /proc does not tell, the kernel will.
    let missing = Capabilities::of_self().map(Capabilities::missing_for_lab).unwrap_or_default();
    if missing.is_empty() { Ok(()) } else { Err(KernelError::Capability { missing }.into()) }
}

/// Whose connection a request uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Client {
    /// Its own
    #[default]
    Fresh,
    /// One for each worker, until either side closes it
    KeepAlive,
}

impl Client {
    fn mode(self) -> Mode {
        match self {
            Client::Fresh => Mode::Fresh,
            Client::KeepAlive => Mode::KeepAlive,
        }
    }
}

/// What a run of the experiment leaves.
struct Run {
    header: TraceHeader,
    judging: verdict::Settings,
    timeline: Timeline,
    recorded: Result<(), FileError>,
    truth: Option<WholeTruth>,
}

/// What the lab and its client know of the run, by other means than the tracer's.
#[derive(Serialize)]
struct WholeTruth {
    lab: Truth,
    requests: Vec<ClientRow>,
}

impl Options {
    fn duration(&self) -> Duration {
        self.duration.unwrap_or(if self.cluster.quick { QUICK_DURATION } else { DURATION })
    }

    fn lab_settings(&self) -> anyhow::Result<LabSettings> {
        self.intervene.check()?;
        Ok(LabSettings {
            keep_alive: self.client == Client::KeepAlive,
            seed: self.seed.unwrap_or_else(rand::random),
            program: std::env::current_exe().context("finding this program for the pods")?,
            ..self.cluster.settings(self.timeout)?
        })
    }

    fn experiment(&self, lab: &Lab, stop: &Stop, progress: &Progress) -> anyhow::Result<Run> {
        let tracer = self.tracing.attach(&[lab.service()])?;
        let origin = Origin::Lab { command: tracing::command_line(), seed: lab.seed() };
        let place = Place {
            services: vec![lab.service()],
            netns: lab.netns(),
            sysctls: lab.sysctls()?,
            notes: lab.notes(),
        };
        let header = tracing::header(origin, &tracer, place)?;
        let judging = self.judging.settings(&header)?;
        let record = self.tracing.create(self.record.as_deref(), &header);
        let mut pipeline = Pipeline::new(&header, record);
        let mut log = self.truth.is_some().then(Vec::new);
        let counts = RefCell::new(Counts::default());

        // Over when the client is: it ends by itself, when asked to, or when the rollout failed.
        let over = Stop::default();
        let (sender, events) = tracing::channel();
        for event in lab.initial_events() {
            pipeline.accept(event);
        }
        let drain = tracing::drain(tracer, sender.clone(), over.clone())?;
        let client = self.start_client(lab, stop, &over, sender.clone())?;
        let rolled = thread::scope(|scope| {
            let rollout = scope.spawn(|| self.roll_out(lab, &over, stop, sender));
            let see = |event: &Event| {
                if let EventKind::RequestEnded(ended) = &event.kind {
                    counts.borrow_mut().count(ended);
                    if let Some(log) = &mut log {
                        log.push(ClientRow::new(event.time - ended.total, ended));
                    }
                }
            };
            tracing::pump(&events, &mut pipeline, see, |now| {
                progress.beat(now.since(header.began), &counts.borrow());
            });
            rollout.join()
        });
        let panicked = |_| anyhow::anyhow!("a thread of the lab panicked");
        drain.join().map_err(panicked)?.context("tracing")?;
        client.join().map_err(panicked)?.context("entering the client's pod")??;
        rolled.map_err(panicked)??;
        let truth = log
            .map(|requests| lab.finish_truth().map(|lab| WholeTruth { lab, requests }))
            .transpose()?;
        let (timeline, recorded) = pipeline.finish();
        Ok(Run { header, judging, timeline, recorded, truth })
    }

    /// Starts the rollout in time, and sees it through unless the run is over before; and intervenes.
    fn roll_out(
        &self,
        lab: &Lab,
        over: &Stop,
        stop: &Stop,
        events: SyncSender<Event>,
    ) -> Result<(), LabError> {
        let sink = |event| drop(events.send(event));
        let roll = || {
            if self.intervene.before(lab, ROLLOUT_AFTER, &sink, over)? {
                lab.rollout(&sink, over)?;
                self.intervene.after(lab, self.cluster.quick, &sink, over)?;
            }
            Ok(())
        };
        match roll() {
            // The client was done before the last old pod was.
            Err(LabError::Stopped) | Ok(()) => Ok(()),
            Err(error) => {
                stop.request();
                Err(error)
            }
        }
    }

    /// Starts the load inside the client's pod. When it has ended, everything else may.
    fn start_client(
        &self,
        lab: &Lab,
        stop: &Stop,
        over: &Stop,
        events: SyncSender<Event>,
    ) -> Result<ClientThread, NetnsError> {
        let settings = ClientSettings {
            mode: self.client.mode(),
            workers: self.workers,
            timeout: self.timeout,
            duration: Some(self.duration()),
            app: Some(APP.to_owned()),
            ..ClientSettings::new(lab.service())
        };
        let (stop, over) = (stop.clone(), over.clone());
        lab.in_client(move || {
            let ended = client::run(&settings, &stop, &mut |event| drop(events.send(event)));
            over.request();
            ended.map(drop)
        })
    }
}

/// The client's thread. Either it could not enter its pod, or the client could not ask.
type ClientThread = JoinHandle<Result<Result<(), ClientError>, NetnsError>>;

/// Where the truth goes.
struct TruthFile {
    path: PathBuf,
    file: File,
}

impl TruthFile {
    /// Opens it; what is in it stays until there is something to write.
    fn create(path: &Path) -> anyhow::Result<TruthFile> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(TruthFile { path: path.to_owned(), file })
    }

    fn write(self, truth: &WholeTruth) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            let mut file = BufWriter::new(&self.file);
            serde_json::to_writer(&mut file, truth)?;
            Ok(file.flush()?)
        };
        write().with_context(|| format!("writing the truth to {}", self.path.display()))
    }
}

/// Requests so far.
#[derive(Default)]
struct Counts {
    total: u64,
    failed: u64,
}

impl Counts {
    fn count(&mut self, ended: &RequestEnded) {
        self.total += 1;
        self.failed += u64::from(ended.outcome.symptom().is_some());
    }
}

/// What is going on, on standard error: a bar on a terminal, nothing elsewhere.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(duration: Duration) -> Progress {
        let bar = if io::stderr().is_terminal() {
            ProgressBar::new(duration.as_secs())
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos:>3}/{len} s  {msg}")
            .expect("the template is a constant");
        bar.set_style(style);
        Progress { bar }
    }

    fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    fn beat(&self, elapsed: Duration, counts: &Counts) {
        self.bar.set_position(elapsed.as_secs());
        self.bar.set_message(format!("{} requests, {} failed", counts.total, counts.failed));
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
