//! The command line: what the user typed, and the exit status.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands;
use crate::sys::{output, signals};

/// Why do requests still fail after a Kubernetes rollout has finished?
#[derive(Debug, Parser)]
#[command(name = "tracer", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One subcommand, one module of `commands`, with its own options and its own `run`.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the tracer on a cluster's nodes, stream their traces here and say the verdict
    Attach(Box<commands::attach::Options>),
    /// What a shell needs to complete the command line
    Completions(commands::completions::Options),
    /// What this machine, kernel and account allow, and what each missing thing costs
    Doctor(commands::doctor::Options),
    /// The stories of single failed requests of a trace
    Explain(commands::explain::Options),
    /// A trace as pcapng for Wireshark, or as JSON lines
    Export(commands::export::Options),
    /// The built-in cluster: a rollout under load, traced, and the verdict
    Lab(Box<commands::lab::Options>),
    /// The load generator
    Load(commands::load::Options),
    /// The manual, as pages for man(1)
    Man(commands::man::Options),
    /// The end of `attach` that runs in a pod
    #[command(hide = true)]
    Node(commands::node::Options),
    /// Trace this node for as long as it runs, and judge each rollout
    Monitor(commands::monitor::Options),
    /// Trace this node, to a file, and say the verdict
    Record(commands::record::Options),
    /// The verdict of a recorded trace, or of what others recorded
    Replay(commands::replay::Options),
    /// The demo app
    Serve(commands::serve::Options),
}

/// Exit status of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A verdict was reached, or there was nothing to judge.
    Done,
    /// `--fail-on` matched.
    Matched,
    /// The verdict is inconclusive.
    Inconclusive,
}

/// Parses the arguments, runs the command, prints an error once and turns all of it into an exit status:
/// 0 done, 1 `--fail-on` matched, 2 error or usage, 3 inconclusive. That nobody reads what it prints is not an error.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let result = match cli.command {
        Command::Attach(options) => commands::attach::run(*options),
        Command::Completions(options) => commands::completions::run(options),
        Command::Doctor(options) => commands::doctor::run(options),
        Command::Explain(options) => commands::explain::run(options),
        Command::Export(options) => commands::export::run(options),
        Command::Lab(options) => commands::lab::run(*options),
        Command::Load(options) => commands::load::run(options),
        Command::Man(options) => commands::man::run(options),
        Command::Node(options) => commands::node::run(options),
        Command::Monitor(options) => commands::monitor::run(options),
        Command::Record(options) => commands::record::run(options),
        Command::Replay(options) => commands::replay::run(options),
        Command::Serve(options) => commands::serve::run(options),
    };
    // A second signal has said what the exit status is, and cleans up.
    signals::exit_if_interrupted();
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Matched) => ExitCode::from(1),
        Ok(Exit::Inconclusive) => ExitCode::from(3),
        Err(error) if is_broken_pipe(&error) && output::is_abandoned() => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// The command line as clap has it: for completions and the manual.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Says something on standard error, in a line of its own. Where nobody can hear it, it is not said: that is
/// no reason to end.
pub fn note(what: impl fmt::Display) {
    // In one piece, so that an exit of another thread does not cut it.
    let _ = Notes.write_all(format!("tracer: {what}\n").as_bytes());
}

/// What is said while the whole terminal is taken.
static HELD: Mutex<Option<Vec<u8>>> = Mutex::new(None);

/// From now on notes are kept, not said.
pub fn hold_notes() {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

/// Says the notes that were kept. From now on they are said at once again.
pub fn say_notes() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let _ = io::stderr().lock().write_all(&held.unwrap_or_default());
}

/// Standard error, where notes and warnings go.
struct Notes;

impl Write for Notes {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match HELD.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(held) => held.write(text),
            None => io::stderr().lock().write(text),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Warnings go to standard error in the same form; more of them with `log::set_max_level`.
fn start_log() {
    env_logger::Builder::new()
        .filter_module("tracer", log::LevelFilter::Debug)
        .format(|line, record| writeln!(line, "tracer: {}", record.args()))
        .target(env_logger::Target::Pipe(Box::new(Notes)))
        .init();
    log::set_max_level(log::LevelFilter::Warn);
}

/// Whether `tracer ARGS` is a command line that this program understands; else the first line of what it would
/// say. Runs nothing.
pub fn accepts(args: &[String]) -> Result<(), String> {
    let line = std::iter::once("tracer").chain(args.iter().map(String::as_str));
    match Cli::try_parse_from(line) {
        Ok(_) => Ok(()),
        // `--help` and `--version` come as errors that go to standard output.
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

/// Also what a connection to somebody else says, so it is no proof that standard output is meant.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_holds_together() {
        // What clap checks in debug builds only, and only when a subcommand is used.
        Cli::command().debug_assert();
    }
}
