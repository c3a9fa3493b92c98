//! The command line: what the user typed, and the exit status.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands;

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
    /// What this machine, kernel and account allow, and what each missing thing costs
    Doctor(commands::doctor::Options),
    /// The built-in cluster: a rollout under load, traced, and the verdict
    Lab(Box<commands::lab::Options>),
    /// The load generator
    Load(commands::load::Options),
    /// Trace this node, to a file, and say the verdict
    Record(commands::record::Options),
    /// The verdict of a recorded trace
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
/// 0 done, 1 `--fail-on` matched, 2 error or usage, 3 inconclusive. A broken pipe is not an error.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    start_log();
    let result = match cli.command {
        Command::Doctor(options) => commands::doctor::run(options),
        Command::Lab(options) => commands::lab::run(*options),
        Command::Load(options) => commands::load::run(options),
        Command::Record(options) => commands::record::run(options),
        Command::Replay(options) => commands::replay::run(options),
        Command::Serve(options) => commands::serve::run(options),
    };
    match result {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Matched) => ExitCode::from(1),
        Ok(Exit::Inconclusive) => ExitCode::from(3),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Says something on standard error, in a line of its own. Where nobody can hear it, it is not said: that is
/// no reason to end.
pub fn note(what: impl fmt::Display) {
    // In one piece, so that an exit of another thread does not cut it.
    let _ = io::stderr().lock().write_all(format!("tracer: {what}\n").as_bytes());
}

/// Warnings go to standard error in the same form; more of them with `log::set_max_level`.
fn start_log() {
    env_logger::Builder::new()
        .filter_module("tracer", log::LevelFilter::Debug)
        .format(|line, record| writeln!(line, "tracer: {}", record.args()))
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
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        // What clap checks in debug builds only, and only when a subcommand is used.
        Cli::command().debug_assert();
    }
}
