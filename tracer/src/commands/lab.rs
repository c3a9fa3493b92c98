//! `tracer lab`: the built-in cluster, the load generator and the tracer, together.

pub mod agreement;
mod all;
mod cluster;
pub mod controls;
mod intervene;
mod matrix;
mod naming;
mod outcome;
mod progress;
mod script;
mod truth_file;

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};

use agreement::Agreement;
use controls::{CONTROLS, Chosen, Control, Scene, Script};
use outcome::Faults;
use progress::{Counts, Progress, Watch};
use truth_file::{TruthFile, WholeTruth};

use super::tracing::Place;
use super::{judging, live, screen, tracing, units};
use crate::cli::{Exit, note};
use crate::correlate::Timeline;
use crate::files::FileError;
use crate::kernel::KernelError;
use crate::kernel::capability::Capabilities;
use crate::lab::truth::ClientRow;
use crate::lab::{APP, Lab, LabError, LabSettings};
use crate::loadgen::client::{self, ClientError, ClientSettings};
use crate::loadgen::{Mode, Target};
use crate::model::{Event, EventKind, Origin, TraceHeader};
use crate::pipeline::Pipeline;
use crate::report::{Report, json, words};
use crate::sys::netns::NetnsError;
use crate::sys::{clock, owner, signals, stop::Stop};
use crate::verdict;

/// When the rollout starts, counted from the load's beginning.
const ROLLOUT_AFTER: Duration = Duration::from_secs(5);

/// How long a run is without `--duration`.
const DURATION: Duration = Duration::from_secs(170);
/// The same with `--quick`: the rollout's 5 + 10 s, the shortened timer, and time to see that it is over.
const QUICK_DURATION: Duration = Duration::from_secs(42);

/// Options of `tracer lab`
#[derive(Clone, Debug, Args)]
pub struct Options {
    #[command(flatten)]
    matrix: matrix::Options,

    #[command(flatten)]
    cluster: cluster::Options,

    #[command(flatten)]
    naming: naming::Options,

    #[command(flatten)]
    intervene: intervene::Options,

    /// Run a control instead, or all: a lab run whose truth is known beforehand, held against that, and request by
    /// request against what the lab itself knows
    #[arg(
        long,
        value_name = "NAME",
        long_help = controls_help(),
        conflicts_with_all = [
            "setup", "quick", "from", "traffic_policy", "replicas", "delay", "prestop", "grace", "rules_lag",
            "intervene", "duration", "client", "workers", "timeout", "late_after", "rollout_start", "rollout_end",
            "fail_on"
        ]
    )]
    control: Option<Chosen>,

    /// How long the load lasts; the rollout starts 5 s in [default: 170s, with --quick 42s,
    /// with --matrix 50s]
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

    /// Record the trace to this file, for `tracer replay`; with --matrix, that of each run to this folder
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Write what the lab itself knows of the run, as JSON, to hold the verdict against it
    #[arg(long, value_name = "FILE")]
    truth: Option<PathBuf>,

    #[command(flatten)]
    tracing: tracing::Options,

    #[command(flatten)]
    live: live::Options,

    #[command(flatten)]
    judging: judging::Options,
}

/// Builds the lab, runs the experiment in it, takes it down and says the verdict. Or does so with all controls, and says
/// how each came out.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    options.live.check()?;
    let control = match options.control {
        Some(Chosen::One(control)) => Some(control),
        Some(Chosen::All) | None => None,
    };
    let plan = match options.control {
        Some(Chosen::All) => None,
        Some(Chosen::One(_)) | None => Some(options.plan(control.as_ref())?),
    };
    anyhow::ensure!(
        plan.is_some() || options.record.is_none() && options.truth.is_none(),
        "--record and --truth are for one run: name a control instead of `all`"
    );
    check_account()?;
    options.judging.check_apart(options.record.as_deref())?;
    // A matrix has many traces, and looks after them itself.
    options.tracing.check(
        options.record.as_deref().filter(|_| !options.matrix.is_asked_for()),
        options.judging.existing(),
    )?;
    let truth = options.truth.as_deref().map(TruthFile::create).transpose()?;
    let stop = Stop::default();
    let hurry = || {
        screen::give_back();
        owner::sweep_own();
        note("interrupted again; the lab is taken down, there is no verdict");
    };
    signals::watch(&stop, hurry).context("catching signals")?;
    if options.matrix.is_asked_for() {
        return matrix::run(&options, &stop);
    }
    let Some(plan) = plan else { return all::run(&options, &stop) };
    let mut run = options.once(&plan, &stop, &Progress::new(plan.duration))?;
    if stop.is_requested() {
        note("interrupted; the lab is taken down, the verdict is of what was traced");
    }
    let exit = options.judging.say(&run.header, &run.timeline, &run.judging)?;
    let recorded = std::mem::replace(&mut run.recorded, Ok(()))
        .context("the verdict is of the whole run, but the trace file is cut short");
    // Both files are wanted, so what is wrong with one must not cost the other.
    if let (Some(file), Some(truth)) = (truth, &run.truth) {
        file.write(truth)?;
    }
    recorded?;
    match control {
        Some(control) => {
            hold(&control, &run, &options.judging)?;
            Ok(Exit::Done)
        }
        None => Ok(exit),
    }
}

/// Holds a control's run against what must come out. Said where the report is, or where notes are if that is JSON.
fn hold(control: &Control, run: &Run, judging: &judging::Options) -> anyhow::Result<()> {
    let (_, agreement, faults) = compare(control, run)?;
    let mut said = format!("\nThe control {}: {}\n", control.name, control.about);
    said.push_str(&outcome::table(&agreement));
    let written = match judging.is_text() {
        true => io::stdout().lock().write_all(said.as_bytes()),
        false => io::stderr().lock().write_all(said.as_bytes()),
    };
    written.context("printing how the control came out")?;
    for fault in faults.all().take(FAULTS) {
        note(fault);
    }
    let more = faults.all().count().saturating_sub(FAULTS);
    if more > 0 {
        note(format_args!("and {more} more"));
    }
    anyhow::ensure!(
        !faults.is_unstaged(),
        "the control {} {UNSTAGED}: too little of it came about, and nothing else is wrong; run it again",
        control.name
    );
    anyhow::ensure!(faults.is_empty(), "the control {} did not come out", control.name);
    note(format_args!("the control {} came out", control.name));
    Ok(())
}

/// A control's report, its agreement with the lab's truth, and what is wrong with it.
fn compare(control: &Control, run: &Run) -> anyhow::Result<(Report, Agreement, Faults)> {
    let report = judging::report(&run.header, &run.timeline, &run.judging);
    let value = serde_json::from_str(&json::render(&report)).context("reading our own report")?;
    let truth = run.truth.as_ref().context("the lab did not keep its truth")?;
    let agreement = agreement::hold(&truth.lab, &truth.requests, &value, run.header.began);
    let mut faults = outcome::faults(control, &value, &agreement);
    faults.wrong.extend(outcome::unnamed(&report, &words::verdict(&report)));
    Ok((report, agreement, faults))
}

/// What is said of a control of which too little came about.
const UNSTAGED: &str = "was not staged";

/// So many faults of a control are said.
const FAULTS: usize = 10;

/// Whether this account may build a lab.
fn check_account() -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(LabError::NotRoot.into());
    }
    // Where /proc does not tell, the kernel will.
    let missing = Capabilities::of_self().map(Capabilities::missing_for_lab).unwrap_or_default();
    if missing.is_empty() { Ok(()) } else { Err(KernelError::Capability { missing }.into()) }
}

/// What is run.
struct Plan {
    lab: LabSettings,
    mode: Mode,
    workers: u32,
    timeout: Duration,
    duration: Duration,
    /// What is done when; none: the rollout, with the options' intervention.
    script: Option<Script>,
    /// For how long the client asks before the trace begins, and what is done meanwhile.
    prelude: Option<(Duration, Script)>,
}

fn controls_help() -> String {
    let mut help = "Run a control instead, or all: a lab run whose truth is known beforehand, held against that, and request \
                    by request against what the lab itself knows; exit status 2 if it does not come out:\n  all: each of \
                    the following, one after the other"
        .to_owned();
    for control in CONTROLS {
        help.push_str(&format!("\n  {}: {}", control.name, control.about));
    }
    help
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
    const ALL: [Client; 2] = [Client::Fresh, Client::KeepAlive];

    /// As it is typed.
    fn name(self) -> &'static str {
        match self {
            Client::Fresh => "fresh",
            Client::KeepAlive => "keep-alive",
        }
    }

    /// What it does, in half a sentence.
    fn about(self) -> &'static str {
        match self {
            Client::Fresh => "each request on a connection of its own",
            Client::KeepAlive => "one connection for each worker, until either side closes it",
        }
    }

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

impl Options {
    fn duration(&self) -> Duration {
        let usual = match (self.matrix.is_asked_for(), self.cluster.quick) {
            (true, _) => matrix::DURATION,
            (false, true) => QUICK_DURATION,
            (false, false) => DURATION,
        };
        self.duration.unwrap_or(usual)
    }

    fn wants_truth(&self) -> bool {
        self.truth.is_some() || self.control.is_some() || self.matrix.is_asked_for()
    }

    /// What is run: a control, or else what the options say.
    fn plan(&self, control: Option<&Control>) -> anyhow::Result<Plan> {
        self.intervene.check(self.client, self.workers)?;
        let of_cluster = self.cluster.settings(self.timeout)?;
        let plan = match control {
            None => Plan {
                mode: self.client.mode(),
                workers: self.workers,
                timeout: self.timeout,
                duration: self.duration(),
                script: None,
                prelude: None,
                lab: LabSettings {
                    keep_alive: self.client == Client::KeepAlive,
                    dns: self.naming.dns(),
                    ..of_cluster
                },
            },
            Some(control) => {
                let mut scene = Scene::usual();
                (control.scene)(&mut scene);
                let Scene { lab, workers, timeout, duration, mode, script, prelude } = scene;
                let LabSettings { proxy_mode, family, .. } = of_cluster;
                anyhow::ensure!(
                    control.is_for(family),
                    "the control {} is for IPv4: the lab has no machine that would answer for a dead pod's IPv6 \
                     address",
                    control.name
                );
                let lab = LabSettings { proxy_mode, family, ..lab };
                let script = Some(script);
                Plan { lab, mode, workers, timeout, duration, script, prelude }
            }
        };
        let lab = LabSettings {
            seed: self.seed.unwrap_or_else(rand::random),
            program: std::env::current_exe().context("finding this program for the pods")?,
            ..plan.lab
        };
        Ok(Plan { lab, ..plan })
    }

    /// Builds the lab, runs the experiment in it and takes it down.
    fn once(&self, plan: &Plan, stop: &Stop, progress: &dyn Watch) -> anyhow::Result<Run> {
        progress.say("building the lab");
        let lab = Lab::build(&plan.lab, stop).map_err(|error| match error {
            LabError::Stopped => {
                anyhow::anyhow!("interrupted before the lab stood; what was built is taken down")
            }
            other => other.into(),
        });
        let run = lab.and_then(|lab| {
            let run = self.experiment(plan, &lab, stop, progress);
            progress.say("taking the lab down");
            let down = lab.teardown();
            let run = run?;
            down?;
            Ok(run)
        });
        progress.end();
        run
    }

    fn experiment(
        &self,
        plan: &Plan,
        lab: &Lab,
        stop: &Stop,
        progress: &dyn Watch,
    ) -> anyhow::Result<Run> {
        script::prelude(plan, lab, stop)?;
        let tracer = self.tracing.attach(&[lab.service()], tracing::Outcomes::Client)?;
        let origin = Origin::Lab { command: tracing::command_line(), seed: lab.seed() };
        let place = Place {
            services: vec![lab.service()],
            netns: lab.netns(),
            sysctls: lab.sysctls()?,
            notes: lab.notes(),
        };
        let header = tracing::header(origin, &tracer, place)?;
        let judging = self.judging.settings(&header)?;
        let record = self.tracing.create(self.record.as_deref(), &header, self.judging.existing());
        let mut pipeline = Pipeline::new(&header, record);
        let mut log = self.wants_truth().then(Vec::new);
        let counts = RefCell::new(Counts::default());

        // Over when the client is: it ends by itself, when asked to, or when the rollout failed.
        let over = Stop::default();
        let (sender, events) = tracing::channel();
        for event in lab.initial_events() {
            pipeline.accept(event);
        }
        if self.live.is_wanted() {
            progress.hide();
        }
        let live = self.live.start(&header, &judging, Some(plan.duration), stop)?;
        let own_ports = self.intervene.ports(lab, plan.workers).map(|(own_ports, event)| {
            pipeline.accept(event);
            own_ports
        });
        let drain = tracing::drain(tracer, sender.clone(), over.clone())?;
        let settings = ClientSettings { ports: own_ports, ..self.client_settings(plan, lab) };
        let client = start_client(settings, lab, stop, &over, sender.clone())?;
        let second = script::start_second(plan, lab, &over)?;
        let rolled = thread::scope(|scope| {
            let rollout = scope.spawn(|| self.act(plan, lab, &over, stop, sender));
            let see = |event: &Event| {
                if let EventKind::RequestEnded(ended) = &event.kind {
                    counts.borrow_mut().count(ended);
                    if let Some(log) = &mut log {
                        log.push(ClientRow::new(event.time - ended.total, ended));
                    }
                }
                true
            };
            tracing::pump(&events, &mut pipeline, see, |now, pipeline| {
                live.beat(pipeline);
                progress.beat(now.since(header.began), &counts.borrow());
            });
            rollout.join()
        });
        drop(live);
        let panicked = |_| anyhow::anyhow!("a thread of the lab panicked");
        drain.join().map_err(panicked)?.context("tracing")?;
        for client in [client].into_iter().chain(second) {
            client.join().map_err(panicked)?.context("entering the client's pod")??;
        }
        rolled.map_err(panicked)??;
        let truth = log
            .map(|requests| lab.finish_truth().map(|lab| WholeTruth { lab, requests }))
            .transpose()?;
        let (timeline, recorded) = pipeline.finish(clock::now());
        Ok(Run { header, judging, timeline, recorded, truth })
    }

    /// How the client asks.
    fn client_settings(&self, plan: &Plan, lab: &Lab) -> ClientSettings {
        let (target, resolver) = match lab.name() {
            None => (lab.service().into(), None),
            Some((host, dns)) => (Target::Name { host, port: lab.service().port() }, Some(dns)),
        };
        let resolve = self.naming.resolve();
        ClientSettings { resolve, resolver, target, ..client_settings(plan, lab) }
    }

    /// Starts the rollout in time, and sees it through unless the run is over before; and intervenes. Or does what
    /// the script says.
    fn act(
        &self,
        plan: &Plan,
        lab: &Lab,
        over: &Stop,
        stop: &Stop,
        events: SyncSender<Event>,
    ) -> Result<(), LabError> {
        let sink = |event| drop(events.send(event));
        let roll = || {
            if let Some(script) = &plan.script {
                return script::play(script, lab, &sink, over);
            }
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
}

fn client_settings(plan: &Plan, lab: &Lab) -> ClientSettings {
    ClientSettings {
        mode: plan.mode,
        workers: plan.workers,
        timeout: plan.timeout,
        duration: Some(plan.duration),
        app: Some(APP.to_owned()),
        ..ClientSettings::new(lab.service())
    }
}

/// Starts the load inside the client's pod. When it has ended, everything else may.
fn start_client(
    settings: ClientSettings,
    lab: &Lab,
    stop: &Stop,
    over: &Stop,
    events: SyncSender<Event>,
) -> Result<ClientThread, NetnsError> {
    let (stop, over) = (stop.clone(), over.clone());
    lab.in_client(move || {
        let ended = client::run(&settings, &stop, &mut |event| drop(events.send(event)));
        over.request();
        ended.map(drop)
    })
}

/// The client's thread. Either it could not enter its pod, or the client could not ask.
type ClientThread = JoinHandle<Result<Result<(), ClientError>, NetnsError>>;
