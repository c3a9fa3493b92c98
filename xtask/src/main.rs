//! Set-up, build, lab, test and benchmarks of tracer: one subcommand, one module with its own `Options` and `run`.
#![forbid(unsafe_code)]

mod bench;
mod build;
mod fuzz;
mod image;
mod kind;
mod lab;
mod process;
mod setup;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Set-up, build, lab and test of tracer
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Find or install what building and testing need; removes nothing
    Setup(setup::Options),
    /// Set up, then build the BPF object and target/release/tracer around it
    Build(build::Options),
    /// Try the parsers on bytes that libFuzzer makes up, for minutes
    Fuzz(fuzz::Options),
    /// Build a container image as a tar archive: target/image/tracer.tar
    Image(image::Options),
    /// The article's experiment on kind: six setups, three minutes each
    Kind(kind::Options),
    /// Build, then run `tracer lab` as root
    Lab(lab::Options),
    /// Set up, then run every test that this machine allows
    Test(test::Options),
    /// Measure speed and memory
    Bench(bench::Options),
    /// Check the rules of docs/ARCHITECTURE.md that a search can check
    Tidy(tidy::Options),
}

fn main() -> ExitCode {
    let verb = Cli::parse().command;
    let result = Workspace::find().and_then(|workspace| match verb {
        Verb::Setup(options) => setup::run(&workspace, &options),
        Verb::Build(options) => build::run(&workspace, &options),
        Verb::Fuzz(options) => fuzz::run(&workspace, &options),
        Verb::Image(options) => image::run(&workspace, &options),
        Verb::Kind(options) => kind::run(&workspace, &options),
        Verb::Lab(options) => lab::run(&workspace, &options),
        Verb::Test(options) => test::run(&workspace, &options),
        Verb::Bench(options) => bench::run(&workspace, &options),
        Verb::Tidy(options) => tidy::run(&workspace, &options),
    });
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::from(2)
    })
}

/// Whether `cargo xtask ARGS` is a command line that this program understands.
fn accepts(args: &[String]) -> Result<(), String> {
    let line = std::iter::once("cargo xtask".to_owned()).chain(args.iter().cloned());
    match Cli::try_parse_from(line) {
        Ok(_) => Ok(()),
        Err(error) if !error.use_stderr() => Ok(()),
        Err(error) => Err(error.to_string().lines().next().unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_lab_takes_any_argument_and_leaves_it_to_tracer() {
        assert_eq!(accepts(&words("lab --setup readiness --quick")), Ok(()));
    }

    #[test]
    fn an_unknown_verb_or_option_is_refused() {
        assert!(accepts(&words("bake")).is_err());
        assert!(accepts(&words("build --quick")).is_err());
    }
}
