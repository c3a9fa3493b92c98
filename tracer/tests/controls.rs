//! The controls, for real: each must come out with its symptoms, causes and verdict, and no request of it may be judged
//! otherwise than the lab itself knows. Needs root and the BPF programs; without them each says that it was left out.
//!
//! With a harness of its own: a control is a lab in its own network namespaces, which waits most of the time, so that
//! more of them run side by side than there are processors.

use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Failed, Trial};
use tracer::commands::lab::controls::CONTROLS;

/// So many labs at a time: each needs about a quarter of a processor.
const LABS: usize = 4;

/// Controls that are run again in another kind of cluster.
const OTHERWISE: [(&str, [&str; 2]); 4] = [
    ("stale-entries", ["--family", "ipv6"]),
    ("address-unreachable", ["--family", "ipv6"]),
    ("firewall", ["--family", "ipv6"]),
    ("rules-lag", ["--mode", "nftables"]),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(LABS);
    let usual = CONTROLS.map(|control| Trial::test(control.name, || holds(control.name, &[])));
    let otherwise = OTHERWISE.map(|(name, more)| {
        Trial::test(format!("{name} {}", more.join(" ")), move || holds(name, &more))
    });
    let mut trials = Vec::from(usual);
    trials.extend(otherwise);
    trials.push(Trial::test("contradictions-are-refused", contradictions_are_refused));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// So often a control is run of which too little comes about.
const TRIES: u32 = 3;

/// Runs a control, and shows all that it says if it did not come out. Again where it was not staged, which is chance; where
/// anything was wrong it fails at once.
fn holds(name: &str, more: &[&str]) -> Result<(), Failed> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: {name}: needs root");
        return Ok(());
    }
    if !tracer::kernel::has_programs() {
        eprintln!("left out: {name}: built without BPF programs");
        return Ok(());
    }
    let mut said = String::new();
    for _ in 0..TRIES {
        let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
            .args(["lab", "--control", name])
            .args(more)
            .stdin(Stdio::null())
            .output()?;
        let (report, notes) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let is_said = |how: &str| notes.contains(&format!("the control {name} {how}"));
        if output.status.code() == Some(0) && is_said("came out") {
            return Ok(());
        }
        said.push_str(&format!("{}\n{report}\n{notes}\n", output.status));
        if !is_said("was not staged") {
            break;
        }
    }
    // In full above: a log may be cut from here on.
    let last = said.lines().rev().find(|line| line.starts_with("tracer: ")).unwrap_or_default();
    Err(format!("{said}\n{last}").into())
}

/// An unknown control, and what contradicts one, is refused before anything is built.
fn contradictions_are_refused() -> Result<(), Failed> {
    for (args, said) in [
        (
            &["--control", "nothing"][..],
            "no control is called `nothing`; there are: stale-entries, ",
        ),
        (&["--control", "firewall", "--quick"][..], "cannot be used with"),
        (
            &["--control", "all", "--truth", "/nowhere/x"][..],
            "--record and --truth are for one run: name a control instead of `all`",
        ),
        (
            &["--control", "address-resets", "--family", "ipv6"][..],
            "the control address-resets is for IPv4",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tracer")).arg("lab").args(args).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !error.contains(said) {
            return Err(format!("{args:?}: {}: {error}", output.status).into());
        }
    }
    Ok(())
}
