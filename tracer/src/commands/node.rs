//! `tracer node`: the end of `tracer attach` that runs in a pod. Not for people, so help does not show it.
//!
//! The recording goes to a file in the pod, and whoever follows it can come back after a lost connection and go on
//! at any byte. A recording that nobody follows ends by itself.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::units;
use crate::cli::Exit;
use crate::cluster::RECORDING_FAILED;
use crate::sys::{signals, stop::Stop};

/// The trace.
const TRACE: &str = "trace";
/// Made by a follower: end the trace.
const STOP: &str = "stop";
/// Made by every follower, again and again: somebody is there.
const FOLLOWED: &str = "followed";
/// Made when the trace is complete.
const DONE: &str = "done";

/// Exit status of a follower whose connection ended before the trace did.
const NOT_WHOLE: i32 = 1;

/// How often the folder is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often a follower says that it is there: in the folder, and to whoever reads it.
const SIGN: Duration = Duration::from_secs(5);
/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// Options of `tracer node`
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    deed: Deed,
}

#[derive(Debug, Subcommand)]
enum Deed {
    /// Record into a folder until asked to stop, or until nobody follows any more
    Run {
        /// The folder
        folder: PathBuf,
        /// How long nobody need follow
        #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::positive)]
        patience: Duration,
        /// What to record: the arguments of `tracer record`
        #[arg(last = true)]
        record: Vec<String>,
    },
    /// Write the trace in a folder to standard output as it grows; a line `stop` on standard input ends it
    Follow {
        /// The folder
        folder: PathBuf,
        /// The byte to begin with
        #[arg(long, value_name = "BYTES", default_value = "0")]
        from: u64,
    },
}

/// Runs it.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    match options.deed {
        Deed::Run { folder, patience, record } => record_into(&folder, patience, &record),
        Deed::Follow { folder, from } => follow(&folder, from),
    }
}

fn record_into(folder: &Path, patience: Duration, record: &[String]) -> anyhow::Result<Exit> {
    let stop = Stop::default();
    signals::watch(&stop, || {}).context("catching signals")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    touch(&folder.join(FOLLOWED))?;
    // A process of its own: its verdict is of no interest here, and it ends as by Ctrl-C.
    let program = std::env::current_exe().context("finding this program")?;
    let mut recorder = Command::new(program)
        .arg("record")
        .args(record)
        .arg(folder.join(TRACE))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("starting to record")?;
    let mut asked = false;
    let status = loop {
        if let Some(status) = recorder.try_wait().context("waiting for the recording")? {
            break status;
        }
        let is_over = || stop.is_requested() || folder.join(STOP).exists();
        if !asked && (is_over() || !is_followed(folder, patience)) {
            interrupt(&recorder)?;
            asked = true;
        }
        std::thread::sleep(LOOK);
    };
    if !reached_a_verdict(status) {
        bail!(RECORDING_FAILED);
    }
    touch(&folder.join(DONE))?;
    // The file is there for as long as the pod is.
    while !stop.is_requested() && is_followed(folder, patience) {
        stop.wait(LOOK);
    }
    Ok(Exit::Done)
}

/// A verdict, or an inconclusive one: both mean that the trace is whole.
fn reached_a_verdict(status: ExitStatus) -> bool {
    matches!(status.code(), Some(0 | 1 | 3))
}

fn interrupt(recorder: &Child) -> anyhow::Result<()> {
    let pid = i32::try_from(recorder.id()).context("a PID")?;
    kill(Pid::from_raw(pid), Signal::SIGINT).context("ending the recording")
}

fn touch(path: &Path) -> anyhow::Result<()> {
    fs::write(path, []).with_context(|| format!("writing {}", path.display()))
}

/// Whether somebody followed within this time.
fn is_followed(folder: &Path, patience: Duration) -> bool {
    let last = fs::metadata(folder.join(FOLLOWED)).and_then(|file| file.modified());
    // A clock that was set back makes it the future: then it is just now.
    last.is_ok_and(|last| SystemTime::now().duration_since(last).unwrap_or_default() < patience)
}

fn follow(folder: &Path, from: u64) -> anyhow::Result<Exit> {
    let stop_file = folder.join(STOP);
    std::thread::Builder::new()
        .name("standard input".to_owned())
        .spawn(move || {
            for line in io::stdin().lock().lines() {
                match line {
                    Ok(line) if line == "stop" => {
                        // Not made: then the pod is removed in the end, without the rest of its trace.
                        let _ = fs::write(&stop_file, []);
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            // The connection is gone: nobody follows any more. Not 0, which means that the trace is whole.
            std::process::exit(NOT_WHOLE);
        })
        .context("starting to read standard input")?;
    let mut trace = None;
    let mut chunk = vec![0; CHUNK];
    let mut out = io::stdout().lock();
    let mut sign = None;
    let mut told = false;
    loop {
        if sign.is_none_or(|at: std::time::Instant| at.elapsed() >= SIGN) {
            touch(&folder.join(FOLLOWED))?;
            io::stderr().write_all(b".").context("giving a sign of life")?;
            sign = Some(std::time::Instant::now());
        }
        // Asked before reading: what was written before it was done is then read.
        let done = folder.join(DONE).exists();
        if trace.is_none() {
            trace = open(&folder.join(TRACE), from)?;
        }
        let count = match &mut trace {
            Some(trace) => trace.read(&mut chunk).context("reading the trace")?,
            None => 0,
        };
        if count == 0 && !told {
            // The recorder tries whether it may have the file before it makes it: this may be the one of the trial.
            trace = None;
        }
        told |= count > 0;
        out.write_all(&chunk[..count]).and_then(|()| out.flush()).context("sending the trace")?;
        match (count, done) {
            (0, true) => return Ok(Exit::Done),
            (0, false) => std::thread::sleep(LOOK),
            _ => {}
        }
    }
}

/// The trace from this byte on, once it is there.
fn open(path: &Path, from: u64) -> anyhow::Result<Option<File>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("opening {}", path.display()))?,
    };
    file.seek(SeekFrom::Start(from)).context("finding the place in the trace")?;
    Ok(Some(file))
}
