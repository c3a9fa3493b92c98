//! `tracer load`

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum, value_parser};
use serde::Serialize;

use super::{output, units};
use crate::cli::Exit;
use crate::codec::requests::{LogFormat, LogWriter};
use crate::loadgen::client::{self, ClientSettings, Closes};
use crate::loadgen::{Mode, Resolve, Target};
use crate::model::{Event, EventKind, NameError, Outcome, Symptom};
use crate::sys::clock;
use crate::sys::{signals, stop::Stop};

/// Options of `tracer load`
#[derive(Debug, Args)]
pub struct Options {
    /// Whom to ask
    #[arg(value_name = "ADDRESS:PORT|NAME:PORT")]
    target: Target,
    /// Whose connection a request uses
    #[arg(long, value_enum, default_value = "fresh")]
    mode: ModeName,
    /// How many requests are under way at once
    #[arg(long, value_name = "N", default_value = "10", value_parser = value_parser!(u32).range(1..=65_535))]
    workers: u32,
    /// How long a request may take: name, connect and answer together
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = units::positive)]
    timeout: Duration,
    /// How long requests are started [default: until Ctrl-C]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    duration: Option<Duration>,
    /// The app that must answer; an answer of another one is a failure
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// When a name is resolved
    #[arg(long, value_enum, default_value = "each")]
    resolve: ResolveName,
    /// The DNS server to ask for the name [default: those of /etc/resolv.conf, after /etc/hosts]
    #[arg(long, value_name = "ADDRESS:PORT")]
    resolver: Option<SocketAddr>,
    /// Send small writes at once (TCP_NODELAY)
    #[arg(long)]
    nodelay: bool,
    /// Write a row for each request to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The log's format [default: by the file's extension]
    #[arg(long, value_enum, requires = "log")]
    log_format: Option<LogFormatName>,
    /// Replace the log if it exists
    #[arg(long, requires = "log")]
    force: bool,
    /// The form of the summary
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeName {
    /// A new connection for every request
    Fresh,
    /// One connection for each worker, until either side closes it or a request fails
    KeepAlive,
}

/// When a name is resolved, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ResolveName {
    /// For each new connection, as clients do that keep no answers
    Each,
    /// For the first connection that finds an address
    Once,
}

impl ResolveName {
    pub(super) fn resolve(self) -> Resolve {
        match self {
            ResolveName::Each => Resolve::Each,
            ResolveName::Once => Resolve::Once,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormatName {
    /// Comma-separated values with a header line
    Csv,
    /// One JSON object a line
    Jsonl,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Runs it.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    let mut log = match &options.log {
        Some(path) => {
            let format = log_format(path, options.log_format)?;
            Some(LogFile::create(path, format, options.force)?)
        }
        None => None,
    };
    let settings = ClientSettings {
        target: options.target,
        mode: match options.mode {
            ModeName::Fresh => Mode::Fresh,
            ModeName::KeepAlive => Mode::KeepAlive,
        },
        workers: options.workers,
        timeout: options.timeout,
        duration: options.duration,
        app: options.app,
        nodelay: options.nodelay,
        resolve: options.resolve.resolve(),
        resolver: options.resolver,
        ports: None,
    };
    let stop = Stop::default();
    signals::watch(&stop, || {}).context("catching signals")?;
    let began = clock::now();
    let mut summary = Summary::default();
    let mut failed_log = None;
    let closes = client::run(&settings, &stop, &mut |event| {
        summary.add(&event);
        if let Some(Err(error)) = log.as_mut().map(|log| log.event(&event)) {
            // A log with a hole in it is worth nothing: no further request, and the error in the end.
            failed_log = Some(error);
            log = None;
            stop.request();
        }
    })?;
    summary.seconds = clock::now().since(began).as_secs_f64();
    summary.closed_by = closes.into();
    if let Some(error) = failed_log {
        return Err(error);
    }
    if let Some(log) = log {
        log.finish()?;
    }
    match options.format {
        Format::Text => summary.write_text(io::stdout().lock()),
        Format::Json => summary.write_json(io::stdout().lock()),
    }
    .context("writing the summary")?;
    Ok(Exit::Done)
}

fn log_format(path: &Path, asked: Option<LogFormatName>) -> anyhow::Result<LogFormat> {
    match (asked, path.extension().and_then(|extension| extension.to_str())) {
        (Some(LogFormatName::Csv), _) | (None, Some("csv")) => Ok(LogFormat::Csv),
        (Some(LogFormatName::Jsonl), _) | (None, Some("jsonl" | "ndjson" | "json")) => {
            Ok(LogFormat::JsonLines)
        }
        (None, _) => anyhow::bail!(
            "{} ends neither in .csv nor in .jsonl; give --log-format",
            path.display()
        ),
    }
}

/// The log on disk.
struct LogFile {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    writer: LogWriter,
    row: Vec<u8>,
}

impl LogFile {
    fn create(path: &Path, format: LogFormat, force: bool) -> anyhow::Result<LogFile> {
        let file = output::create(path, force)?;
        let mut log = LogFile {
            path: path.to_owned(),
            file: BufWriter::new(file),
            writer: LogWriter::new(format, clock::anchor()),
            row: Vec::new(),
        };
        log.writer.header(&mut log.row);
        log.write()?;
        Ok(log)
    }

    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        self.writer.event(event, &mut self.row);
        self.write()
    }

    fn write(&mut self) -> anyhow::Result<()> {
        let written = self.file.write_all(&self.row);
        self.row.clear();
        written.with_context(|| self.failed())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.file.flush().with_context(|| self.failed())
    }

    fn failed(&self) -> String {
        format!("writing the log {}", self.path.display())
    }
}

/// What is said in the end.
#[derive(Debug, Default, Serialize)]
struct Summary {
    /// How long it all took.
    seconds: f64,
    /// Requests that ended.
    requests: u64,
    /// Those answered in full by the right app, below 500.
    answered: u64,
    /// The rest.
    failed: u64,
    /// The rest by what the client saw.
    symptoms: BTreeMap<Symptom, u64>,
    /// Requests whose name did not resolve, by the reason; they are among the symptom `local`.
    unresolved: BTreeMap<NameError, u64>,
    /// Answers by the pod that gave them.
    pods: BTreeMap<String, u64>,
    /// Who closed the connections whose last answer was complete.
    closed_by: ClosedBy,
}

#[derive(Debug, Default, Serialize)]
struct ClosedBy {
    server: u64,
    client: u64,
}

impl From<Closes> for ClosedBy {
    fn from(closes: Closes) -> ClosedBy {
        ClosedBy { server: closes.server, client: closes.client }
    }
}

impl Summary {
    fn add(&mut self, event: &Event) {
        let EventKind::RequestEnded(ended) = &event.kind else {
            return;
        };
        self.requests += 1;
        match ended.outcome {
            Outcome::Answered { .. } => self.answered += 1,
            Outcome::Failed { symptom, .. } => {
                self.failed += 1;
                *self.symptoms.entry(symptom).or_default() += 1;
            }
        }
        if let Some(reason) = ended.resolution.and_then(|resolution| resolution.failed) {
            *self.unresolved.entry(reason).or_default() += 1;
        }
        if let Some(pod) = &ended.pod {
            // Few pods, many answers: no copy of a name that is there.
            match self.pods.get_mut(pod) {
                Some(count) => *count += 1,
                None => _ = self.pods.insert(pod.clone(), 1),
            }
        }
    }

    fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut out, self)?;
        writeln!(out)
    }

    fn write_text(&self, mut out: impl Write) -> io::Result<()> {
        let rate = self.requests as f64 / self.seconds.max(f64::MIN_POSITIVE);
        writeln!(
            out,
            "{} requests in {:.1} s ({rate:.0} a second), {} answered, {} failed",
            self.requests, self.seconds, self.answered, self.failed
        )?;
        for (symptom, count) in &self.symptoms {
            writeln!(out, "  {symptom:<16} {count}")?;
        }
        for (reason, count) in &self.unresolved {
            writeln!(out, "name not resolved, {}: {count}", reason.name())?;
        }
        for (pod, count) in &self.pods {
            writeln!(out, "answered by {pod}: {count}")?;
        }
        writeln!(
            out,
            "closed first by the server: {}, by the client: {}",
            self.closed_by.server, self.closed_by.client
        )
    }
}
