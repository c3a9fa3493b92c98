//! SIGINT, SIGTERM and SIGHUP, turned into the wish to stop.

use std::fs;
use std::io;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};

use super::stop::Stop;

/// Exit status after a second signal: that of a shell's command ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// What follows the first signal within this time is the same wish: timeout(1) signals its child and then the
/// child's group, a closing terminal the shell and its job.
const SAME_WISH: Duration = Duration::from_millis(250);

/// Held by whoever cleans up after a second signal, until the process exits.
static INTERRUPTING: Mutex<()> = Mutex::new(());

/// Waits for the exit after a second signal, if there was one: what a command comes to while everything is cleaned up
/// around it means nothing.
pub fn exit_if_interrupted() {
    drop(INTERRUPTING.lock());
}

/// From now on the first SIGINT, SIGTERM or SIGHUP (the terminal was closed) requests `stop`. A second one, a
/// quarter of a second later or more, calls `clean_up` on a thread that waits for nothing else, and exits the
/// process at once with status 130.
///
/// A handler, not a blocked signal: a mask would be inherited by every child process, which could then not
/// be asked to end. A SIGHUP that was ignored from the start (nohup(1)) stays so.
///
/// # Errors
/// If the handlers or the thread could not be had.
pub fn watch(stop: &Stop, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stop = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let mut hangup = {
        let _context = runtime.enter();
        (!is_ignored(Signal::SIGHUP)).then(|| signal(SignalKind::hangup())).transpose()?
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut any = async || {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = received(&mut hangup) => {}
                }
            };
            any().await;
            stop.request();
            let end = Instant::now() + SAME_WISH;
            while timeout_at(end, any()).await.is_ok() {}
            any().await;
        });
        let _interrupting = INTERRUPTING.lock();
        clean_up();
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}

/// Waits for a signal that may not be watched.
async fn received(watched: &mut Option<tokio::signal::unix::Signal>) {
    match watched {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process ignores a signal (SigIgn of proc_pid_status(5)).
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal as u32 - 1) != 0
}
