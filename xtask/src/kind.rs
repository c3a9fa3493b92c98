//! `cargo xtask kind`: the article's experiment on a real Kubernetes in containers: the image built and loaded, the
//! demo app rolled in each setup under load, `tracer attach` beside it, and what it says held against what must come.
//!
//! Needs a container runtime, kind and kubectl; where one is missing that is said, and nothing was tried.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::build;
use crate::image;
use crate::process;
use crate::setup::{self, Need, Voice};
use crate::workspace::Workspace;

/// The node whose pods ask: a worker of deploy/kind/cluster.yaml.
const NODE: &str = "worker";

/// What must come of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Late failures, by reused source ports.
    Late,
    /// None.
    None,
}

/// The setups of deploy/demo in the article's order. Where an app dies before the nodes' rules are right, ports that
/// come round fail late; where it waits or lives on, nothing does.
const SETUPS: [(&str, Expected); 6] = [
    ("naive", Expected::Late),
    ("readiness", Expected::Late),
    ("readiness-drain", Expected::Late),
    ("readiness-prestop", Expected::None),
    ("readiness-prestop-drain", Expected::None),
    ("readiness-no-handler", Expected::None),
];

/// Options of `cargo xtask kind`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run this setup only; may be given more than once [default: all six, each takes three minutes]
    #[arg(long, value_name = "NAME", value_parser = SETUPS.map(|(name, _)| name))]
    setup: Vec<String>,

    /// The cluster's name; one that is there already is used, and stays
    #[arg(long, value_name = "NAME", default_value = "tracer")]
    name: String,

    /// Leave the cluster when all is done
    #[arg(long)]
    keep: bool,
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    tools(&|program| process::find(program).is_some())?;
    let toolchain = setup::ensure(workspace, Need::Build, Voice::Deeds)?;
    let object = build::bpf_object(workspace, &toolchain)?;
    let archive = workspace.target().join("image/kind.tar");
    let made = image::make(workspace, &object, &archive, None)?;
    let tracer = build::release(workspace, &object)?;
    let cluster = Cluster { name: &options.name, root: workspace.root(), tracer: &tracer };
    let is_new = cluster.start()?;
    eprintln!("loading {made}");
    process::show(
        kind().args(["load", "image-archive"]).arg(&archive).args(["--name", cluster.name]),
    )?;
    let tables = cluster.experiment(&options.setup);
    if is_new && !options.keep {
        process::show(kind().args(["delete", "cluster", "--name", cluster.name]))?;
    } else {
        eprintln!("the cluster {} stays: kind delete cluster --name {0} removes it", cluster.name);
    }
    let wrong = tables?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Whether all programs are there.
///
/// # Errors
/// Names every one that is not, with what it is for: nothing was tried.
fn tools(is_there: &dyn Fn(&str) -> bool) -> Result<()> {
    let runtimes = ["docker", "podman", "nerdctl"];
    let mut missing = Vec::new();
    if !runtimes.iter().any(|runtime| is_there(runtime)) {
        missing.push("docker, podman or nerdctl (runs the nodes)");
    }
    for (program, use_) in [
        ("kind", "kind (makes the cluster: https://kind.sigs.k8s.io)"),
        ("kubectl", "kubectl (applies deploy/)"),
    ] {
        if !is_there(program) {
            missing.push(use_);
        }
    }
    ensure!(
        missing.is_empty(),
        "the experiment on kind was not tried: not on this machine: {}",
        missing.join("; ")
    );
    Ok(())
}

/// Why `cargo xtask test` leaves it out here.
pub(crate) fn left_out() -> String {
    match tools(&|program| process::find(program).is_some()) {
        Ok(()) => {
            "kind: takes 20 minutes and a container runtime; `cargo xtask kind` runs it".to_owned()
        }
        Err(missing) => format!("kind: {missing}"),
    }
}

fn kind() -> Command {
    let mut command = Command::new("kind");
    command.env("PATH", process::search_path());
    command
}

/// A kind cluster.
struct Cluster<'a> {
    name: &'a str,
    root: &'a Path,
    tracer: &'a Path,
}

impl Cluster<'_> {
    /// Makes it, unless it is there; whether it was made.
    fn start(&self) -> Result<bool> {
        let there = process::read(kind().args(["get", "clusters"]))
            .context("asking kind for its clusters (does the container runtime run?)")?;
        if there.lines().any(|name| name == self.name) {
            eprintln!("using the cluster {}", self.name);
            return Ok(false);
        }
        let config = self.root.join("deploy/kind/cluster.yaml");
        let mut create = kind();
        create.args(["create", "cluster", "--wait", "180s", "--name", self.name, "--config"]);
        process::show(create.arg(config))?;
        Ok(true)
    }

    fn context(&self) -> String {
        format!("kind-{}", self.name)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("kubectl");
        command.env("PATH", process::search_path()).current_dir(self.root);
        process::show(command.args(["--context", &self.context()]).args(arguments))
    }

    /// Runs the setups that are wanted, or all, and prints a row for each; how many came out wrong.
    fn experiment(&self, wanted: &[String]) -> Result<usize> {
        self.kubectl(&["apply", "-k", "deploy/roles"])?;
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|one| one == name);
        let mut wrong = 0;
        let mut rows = vec![heading()];
        for (setup, expected) in SETUPS.into_iter().filter(|(name, _)| is_wanted(name)) {
            let folder = format!("deploy/demo/{setup}");
            self.kubectl(&["apply", "-k", &folder])?;
            let status = ["rollout", "status", "deployment/web", "--timeout=180s"];
            self.kubectl(&[&["--namespace", "demo"][..], &status].concat())?;
            let report = self.attach()?;
            let judged = judge(&report, expected);
            wrong += usize::from(judged.is_err());
            rows.push(row(setup, &report, &judged));
            eprintln!("{}", rows[rows.len() - 1]);
            self.kubectl(&["delete", "-k", &folder, "--wait=true"])?;
        }
        rows.iter().for_each(|row| println!("{row}"));
        Ok(wrong)
    }

    /// The article's run, by one command.
    fn attach(&self) -> Result<Value> {
        let node = format!("{}-{NODE}", self.name);
        let context = self.context();
        let mut command = Command::new(self.tracer);
        command.args(["attach", &node, "--context", &context, "--service", "demo/web"]);
        command.args(["--load", "--roll", "web", "--format", "json"]);
        command.stdin(Stdio::null()).stderr(Stdio::inherit());
        let output =
            command.output().with_context(|| format!("starting {}", self.tracer.display()))?;
        match output.status.code() {
            Some(0 | 3) => serde_json::from_slice(&output.stdout).context("its report is not JSON"),
            status => bail!("tracer attach ended with exit status {}", status.unwrap_or(-1)),
        }
    }
}

fn number(report: &Value, pointer: &str) -> u64 {
    report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn outcome(report: &Value) -> &str {
    report.pointer("/hypothesis/outcome").and_then(Value::as_str).unwrap_or("no outcome")
}

/// Whether it came out as it must; else what did not.
fn judge(report: &Value, expected: Expected) -> Result<(), String> {
    let late = number(report, "/requests/late");
    let (total, exposed) =
        (number(report, "/requests/total"), number(report, "/exposure/attempts"));
    // 10 workers, 50 ms a request, 170 s; a slow machine does less, but not a tenth.
    if total < 3_000 {
        return Err(format!("only {total} requests"));
    }
    match (expected, outcome(report)) {
        (Expected::Late, "supported") if late > 0 => Ok(()),
        (Expected::None, "not-observed") if late == 0 => Ok(()),
        (_, outcome) => {
            let reasons = report.pointer("/hypothesis/reasons").cloned().unwrap_or_default();
            Err(format!("{outcome}, {late} late, {exposed} met a stale entry: {reasons}"))
        }
    }
}

fn heading() -> String {
    format!(
        "{:<26}{:>9}{:>8}{:>6}{:>7}  {:<14}",
        "setup", "requests", "failed", "late", "stale", "outcome"
    )
}

fn row(setup: &str, report: &Value, judged: &Result<(), String>) -> String {
    let row = format!(
        "{setup:<26}{:>9}{:>8}{:>6}{:>7}  {:<14}",
        number(report, "/requests/total"),
        number(report, "/requests/failed"),
        number(report, "/requests/late"),
        number(report, "/exposure/attempts"),
        outcome(report),
    );
    match judged {
        Ok(()) => format!("{row}as expected"),
        Err(why) => format!("{row}NOT as expected: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_said_by_name() {
        assert!(tools(&|_| true).is_ok());
        let error =
            tools(&|program| program == "kubectl").expect_err("two are missing").to_string();
        assert!(
            error.contains("was not tried") && error.contains("docker") && error.contains("kind")
        );
        assert!(!error.contains("kubectl (applies"), "{error}");
    }

    fn report(outcome: &str, late: u64) -> Value {
        json!({
            "hypothesis": { "outcome": outcome, "reasons": ["because"] },
            "requests": { "total": 28_505, "failed": 70, "late": late },
            "exposure": { "attempts": late, "failed": late },
        })
    }

    #[test]
    fn a_setup_must_come_out_as_the_article_has_it() {
        assert_eq!(judge(&report("supported", 45), Expected::Late), Ok(()));
        assert_eq!(judge(&report("not-observed", 0), Expected::None), Ok(()));
        for (outcome, late, expected) in [
            ("not-observed", 0, Expected::Late),
            ("supported", 45, Expected::None),
            ("refuted", 45, Expected::Late),
            ("inconclusive", 0, Expected::None),
        ] {
            assert!(judge(&report(outcome, late), expected).is_err(), "{outcome} {expected:?}");
        }
        let mut few = report("not-observed", 0);
        few["requests"]["total"] = 12.into();
        assert_eq!(judge(&few, Expected::None), Err("only 12 requests".to_owned()));
    }

    #[test]
    fn every_setup_has_its_overlay() {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/demo");
        for (setup, _) in SETUPS {
            assert!(deploy.join(setup).join("kustomization.yaml").is_file(), "{setup}");
        }
    }
}
