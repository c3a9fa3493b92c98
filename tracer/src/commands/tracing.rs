//! What `lab` and `record` share: the tracer on a thread of its own, the way of its events to the
//! pipeline, and the trace's header.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use nix::sys::utsname::uname;

use super::units;
use crate::files::{self, Existing, FileError, TraceWriter};
use crate::kernel::{self, KernelError, Tracer};
use crate::model::{Event, MonoNs, Netns, Origin, Sysctl, TraceHeader};
use crate::pipeline::Pipeline;
use crate::sys::{clock, stop::Stop};

/// How long the tracer's thread waits for records before it looks whether it should stop.
const DRAIN_WAIT: Duration = Duration::from_millis(50);

/// Events between the sources and the pipeline. A source that finds it full waits; the ring buffer then
/// fills, and what it loses is counted there.
const CHANNEL_EVENTS: usize = 1 << 16;

/// Options of a live trace.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    /// The size of the ring buffer between the kernel and tracer; rounded up to a power of two of pages
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = units::ring)]
    ring_size: u32,

    /// Print the diagnostics of the BPF programs themselves to standard error
    #[arg(long)]
    bpf_log: bool,
}

impl Options {
    /// Whether tracing could work, and the trace file be had: for a look before anything is done.
    ///
    /// # Errors
    /// [`KernelError`], [`FileError`].
    pub fn check(&self, record: Option<&Path>, existing: Existing) -> anyhow::Result<()> {
        if let Some(path) = record {
            files::check(path, existing)?;
        }
        Ok(kernel::preflight()?)
    }

    /// Attaches the BPF programs for these Services.
    pub fn attach(
        &self,
        services: &[SocketAddr],
        outcomes: Outcomes,
    ) -> Result<Tracer, KernelError> {
        if self.bpf_log {
            log::set_max_level(log::LevelFilter::Debug);
        }
        Tracer::attach(&kernel::Settings {
            services: services.to_vec(),
            netns: Vec::new(),
            ring_bytes: self.ring_size,
            connects: outcomes == Outcomes::Kernel,
            program_log: self.bpf_log,
        })
    }

    /// Makes the trace file, if one is wanted.
    pub fn create(
        &self,
        path: Option<&Path>,
        header: &TraceHeader,
        existing: Existing,
    ) -> Result<Option<TraceWriter>, FileError> {
        path.map(|path| TraceWriter::create(path, header, existing)).transpose()
    }
}

/// Who tells how requests end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcomes {
    /// The client itself.
    Client,
    /// The kernel, of its sockets.
    Kernel,
}

/// What a header says of the place that is traced.
#[derive(Debug, Default)]
pub struct Place {
    /// The Services of interest.
    pub services: Vec<SocketAddr>,
    /// The namespaces known by name.
    pub netns: Vec<Netns>,
    /// The sysctls that matter.
    pub sysctls: Vec<Sysctl>,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// The header of a trace that begins now.
pub fn header(origin: Origin, tracer: &Tracer, place: Place) -> anyhow::Result<TraceHeader> {
    let machine = uname().context("asking for this machine's name")?;
    let text = |part: &OsStr| part.to_string_lossy().into_owned();
    let anchor = clock::anchor();
    let mut notes = tracer.notes();
    notes.extend(place.notes);
    Ok(TraceHeader {
        tracer: env!("CARGO_PKG_VERSION").to_owned(),
        origin,
        kernel: format!("{} {}", text(machine.release()), text(machine.machine())),
        node: text(machine.nodename()),
        hz: tracer.hz(),
        began: anchor.mono,
        anchor,
        hooks: tracer.hooks(),
        netns: place.netns,
        sysctls: place.sysctls,
        services: place.services,
        drop_reasons: tracer.drop_reasons(),
        notes,
    })
}

/// The command line as it was typed, for the header.
pub fn command_line() -> String {
    std::env::args_os()
        .enumerate()
        .map(|(nth, argument)| match nth {
            0 => "tracer".to_owned(),
            _ => argument.to_string_lossy().into_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// A bounded way for events from the sources to the pipeline.
pub fn channel() -> (SyncSender<Event>, Receiver<Event>) {
    mpsc::sync_channel(CHANNEL_EVENTS)
}

/// Starts the thread that drains the tracer into the channel until `stop`; then the programs are detached,
/// and what they had recorded by then follows.
pub fn drain(
    mut tracer: Tracer,
    events: SyncSender<Event>,
    stop: Stop,
) -> anyhow::Result<JoinHandle<Result<(), KernelError>>> {
    thread::Builder::new()
        .name("drain".to_owned())
        .spawn(move || {
            // The receiver outlives this thread; if it is gone, so is the wish for events.
            let mut sink = |event| drop(events.send(event));
            while !stop.is_requested() {
                tracer.drain(DRAIN_WAIT, &mut sink)?;
            }
            tracer.finish(&mut sink)
        })
        .context("starting the thread that reads the ring buffer")
}

/// Moves events from the channel to the pipeline until every sender is gone. `beat` is called about every
/// 50 ms, with the pipeline for what it has to add, and `keep` for each event on its way:
/// what it does not want goes no further.
pub fn pump(
    events: &Receiver<Event>,
    pipeline: &mut Pipeline,
    mut keep: impl FnMut(&Event) -> bool,
    mut beat: impl FnMut(MonoNs, &mut Pipeline),
) {
    let mut next_beat = MonoNs(0);
    loop {
        match events.recv_timeout(DRAIN_WAIT) {
            Ok(event) => {
                if keep(&event) {
                    pipeline.accept(event);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = clock::now();
        if now >= next_beat {
            pipeline.tick(now);
            beat(now, pipeline);
            next_beat = now + DRAIN_WAIT;
        }
    }
}
