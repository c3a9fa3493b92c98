//! `tracer serve`

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::units;
use crate::cli::Exit;
use crate::loadgen::server::{self, ServerSettings};

/// Options of `tracer serve`
#[derive(Debug, Args)]
pub struct Options {
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
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = units::duration)]
    start_delay: Duration,
    /// Keep connections open for more requests (else it closes after each answer)
    #[arg(long)]
    keep_alive: bool,
    /// Be killed when the thread that started this process ends
    #[arg(long)]
    die_with_parent: bool,
}

/// Runs it.
pub fn run(options: Options) -> anyhow::Result<Exit> {
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
    server::run(&ServerSettings {
        listen: options.listen,
        app: options.app,
        pod,
        delay: options.delay,
        start_delay: options.start_delay,
        keep_alive: options.keep_alive,
    })?;
    Ok(Exit::Done)
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
