//! `tracer serve`

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{output, units};
use crate::cli::{Exit, note};
use crate::loadgen::dns::{self, Asked, DnsFailure, DnsSettings};
use crate::loadgen::server::{self, OnSigterm, ServerSettings};

/// Options of `tracer serve`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    app: AppOptions,
}

/// What else can be served.
#[derive(Debug, Subcommand)]
enum Other {
    /// A small DNS server, which can be slow or fail on purpose
    Dns(DnsOptions),
}

#[derive(Debug, Args)]
struct AppOptions {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    /// The app's name, in every answer
    #[arg(long, value_name = "NAME", default_value = "demo")]
    app: String,
    /// The pod's name, in every answer [default: the host name]
    #[arg(long, value_name = "NAME")]
    pod: Option<String>,
    /// How long a request takes
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = units::duration)]
    delay: Duration,
    /// How long after its start it listens
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::duration)]
    start_delay: Duration,
    /// Keep connections open for more requests (else it closes after each answer)
    #[arg(long)]
    keep_alive: bool,
    /// On SIGTERM stop listening, answer what is in flight with `Connection: close`, close idle connections, then
    /// exit (else it exits at once)
    #[arg(long, conflicts_with = "ignore_sigterm")]
    drain: bool,
    /// Set no handler for SIGTERM: as PID 1, as in a container, it runs on until SIGKILL; any other process is
    /// ended by the signal at once
    #[arg(long)]
    ignore_sigterm: bool,
    /// Write the headers and the body of an answer separately, as simple servers do
    #[arg(long)]
    two_writes: bool,
    /// Send small writes at once (TCP_NODELAY), also while an earlier one is not acknowledged
    #[arg(long)]
    nodelay: bool,
    /// Be killed when the thread that started this process ends
    #[arg(long)]
    die_with_parent: bool,
}

#[derive(Debug, Args)]
struct DnsOptions {
    /// Where to listen, by UDP
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:53")]
    listen: SocketAddr,
    /// A name that it knows, with an address; may be given more than once, also for one name
    #[arg(long = "name", value_name = "NAME=ADDRESS", value_parser = name)]
    names: Vec<(String, IpAddr)>,
    /// How long it takes to answer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::duration)]
    delay: Duration,
    /// The probability that a question is not answered
    #[arg(long, value_name = "0..1", default_value = "0", value_parser = units::probability)]
    lose: f64,
    /// What decides which questions these are
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// Answer this to every question
    #[arg(long, value_enum)]
    fail: Option<DnsFailureName>,
    /// Write a row for each question to this file: when it came (nanoseconds of the monotonic clock), from where, and
    /// whether it is answered (true or false)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Replace the log if it exists
    #[arg(long, requires = "log")]
    force: bool,
    /// Be killed when the thread that started this process ends
    #[arg(long)]
    die_with_parent: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DnsFailureName {
    /// The server failed
    Servfail,
    /// There is no such name
    Nxdomain,
    /// The server does not answer such questions
    Refused,
}

/// Runs it.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    match options.other {
        None => run_app(options.app),
        Some(Other::Dns(options)) => run_dns(options),
    }
}

fn run_app(options: AppOptions) -> anyhow::Result<Exit> {
    if options.die_with_parent {
        die_with_parent()?;
    }
    let pod = match options.pod {
        Some(pod) => pod,
        None => fs::read_to_string("/proc/sys/kernel/hostname")
            .context("reading the host name; give --pod")?
            .trim_end()
            .to_owned(),
    };
    let settings = ServerSettings {
        listen: options.listen,
        app: options.app,
        pod,
        delay: options.delay,
        start_delay: options.start_delay,
        keep_alive: options.keep_alive,
        two_writes: options.two_writes,
        nodelay: options.nodelay,
        on_sigterm: match (options.drain, options.ignore_sigterm) {
            (true, _) => OnSigterm::Drain,
            (false, true) => OnSigterm::Unhandled,
            (false, false) => OnSigterm::Exit,
        },
    };
    server::run(&settings, &mut |at| note(format_args!("listening on {at}")))?;
    Ok(Exit::Done)
}

fn run_dns(options: DnsOptions) -> anyhow::Result<Exit> {
    if options.die_with_parent {
        die_with_parent()?;
    }
    let settings = DnsSettings {
        listen: options.listen,
        names: options.names,
        delay: options.delay,
        lose: options.lose,
        seed: options.seed,
        fail: options.fail.map(|fail| match fail {
            DnsFailureName::Servfail => DnsFailure::Servfail,
            DnsFailureName::Nxdomain => DnsFailure::Nxdomain,
            DnsFailureName::Refused => DnsFailure::Refused,
        }),
    };
    let mut log = options.log.map(|path| output::create(&path, options.force)).transpose()?;
    if let Some(log) = &mut log {
        log.write_all(b"mono_ns,client,answered\n").context("writing the log")?;
    }
    let mut asked = |Asked { at, client, is_answered }: Asked| match &mut log {
        // Row by row: whoever reads it while the server runs finds no half of one.
        Some(log) => log.write_all(format!("{},{client},{is_answered}\n", at.0).as_bytes()),
        None => Ok(()),
    };
    let mut listening = |at| note(format_args!("listening on {at}, by UDP"));
    dns::run(&settings, &mut listening, &mut asked)?;
    Ok(Exit::Done)
}

/// `web.shop=10.96.0.20`
fn name(text: &str) -> Result<(String, IpAddr), String> {
    let wrong = || "write it as NAME=ADDRESS, such as web.shop=10.96.0.20".to_owned();
    let (name, address) = text.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    Ok((name.to_owned(), address.parse().map_err(|_| wrong())?))
}

/// Asks the kernel for SIGKILL at the parent's death (prctl(2), PR_SET_PDEATHSIG), which also reaches PID 1 of
/// a PID namespace since it comes from outside.
///
/// A parent that dies before the call sends nothing any more, but then another process has become the parent.
/// In a PID namespace of its own that can't be told: the parent, being outside, is always 0 there.
fn die_with_parent() -> anyhow::Result<()> {
    let parent = getppid();
    prctl::set_pdeathsig(Signal::SIGKILL).context("asking to die with the parent")?;
    anyhow::ensure!(getppid() == parent, "the parent has already gone");
    Ok(())
}
