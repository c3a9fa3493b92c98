//! `cargo xtask test`: the same set-up, then every test that this machine allows, and a line for each that it
//! does not.

mod output;
mod quick_lab;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow};
use clap::Args;

use self::output::{Libtest, Tally};
use crate::build;
use crate::image;
use crate::kind;
use crate::process::{self, Privilege};
use crate::setup::{self, Need, Voice};
use crate::workspace::Workspace;

/// Options of `cargo xtask test`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out the quick lab, which takes a minute
    #[arg(long)]
    no_lab: bool,

    /// Leave out the container image, whose build takes minutes
    #[arg(long)]
    no_image: bool,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let toolchain = setup::ensure(workspace, Need::Everything, Voice::Deeds)?;
    setup::page::ensure(Voice::Deeds);
    let object = build::bpf_object(workspace, &toolchain)?;
    let privilege = Privilege::of_this_account()?;

    // The dev profile: overflow checks and debug assertions are half of what tests are for.
    let mut command = process::host_cargo(workspace.root());
    command.args(["test", "--workspace", "--no-fail-fast"]).env(build::OBJECT_VARIABLE, &object);
    if let Some(prefix) = privilege.prefix().filter(|prefix| !prefix.is_empty()) {
        // Built by this account, run as root: nothing in target/ belongs to root afterwards.
        let words = prefix.iter().map(|word| format!("{:?}", word.to_string_lossy()));
        let runner = words.collect::<Vec<_>>().join(", ");
        command.args(["--config", &format!("target.'cfg(all())'.runner = [{runner}]")]);
    }
    // Passing tests say on standard error what they left out, and libtest keeps that to itself otherwise.
    command.args(["--", "--show-output"]);
    let mut tally = run_tests(&mut command)?;

    if options.no_lab {
        tally.leave_out("quick lab: --no-lab");
    } else if privilege == Privilege::None {
        tally.leave_out("quick lab: not root and no sudo");
    } else {
        println!("\nquick lab");
        let tracer = build::release(workspace, &object);
        tally.add("quick lab", tracer.and_then(|tracer| quick_lab::run(&tracer, privilege)));
    }

    if options.no_image {
        tally.leave_out("image: --no-image");
    } else if privilege != Privilege::Root {
        tally.leave_out("image: not root, so its file system can't be entered");
    } else {
        println!("\nimage");
        tally.add("image", image::test(workspace, &object));
    }

    tally.leave_out(&kind::left_out());

    println!();
    for line in tally.left_out() {
        println!("left out: {line}");
    }
    for line in tally.failures() {
        println!("failed: {line}");
    }
    println!("{tally}");
    Ok(if tally.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs the tests, shows what they print as they go, and counts.
fn run_tests(command: &mut Command) -> Result<Tally> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("starting cargo test")?;
    let stderr = child.stderr.take().expect("it is piped");
    let from_stderr = thread::spawn(move || -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        for line in lines(stderr) {
            let line = line?;
            eprintln!("{line}");
            left_out.extend(output::left_out(&line).map(str::to_owned));
        }
        Ok(left_out)
    });
    let mut libtest = Libtest::default();
    for line in lines(child.stdout.take().expect("it is piped")) {
        let line = line?;
        if libtest.read(&line) {
            println!("{line}");
        }
    }
    let direct = from_stderr.join().expect("the reader of standard error does not panic")?;
    let status = child.wait().context("waiting for cargo test")?;
    direct.iter().for_each(|line| libtest.read_directly(line));
    let mut tally = libtest.finish();
    if !status.success() && tally.failures().is_empty() {
        // It did not compile, or a test program died without naming the test.
        tally.add("cargo test", Err(anyhow!("failed outside of a test ({status})")));
    }
    Ok(tally)
}

/// Lines as text, whatever the bytes are.
fn lines(stream: impl Read) -> impl Iterator<Item = Result<String>> {
    BufReader::new(stream).split(b'\n').map(|line| {
        Ok(String::from_utf8_lossy(&line.context("reading the tests' output")?).into_owned())
    })
}
