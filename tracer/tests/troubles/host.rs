//! The guard of every test here: the machine before and after a trouble.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::command::{Output, Running};
use crate::watched::Watched;

/// The kernel frees programs and namespaces a little after their last user is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sysctls that change by themselves.
const RESTLESS: [&str; 1] = ["netfilter/nf_conntrack_count"];

/// The network of the host: what a lab or a tracer could have changed in it by mistake, by name.
#[derive(Debug)]
pub(crate) struct Host(BTreeMap<String, String>);

impl Host {
    /// As it is now.
    pub(crate) fn now() -> Host {
        let mut things = BTreeMap::new();
        for (program, arguments) in [
            ("iptables-save", &[][..]),
            ("ip6tables-save", &[]),
            ("nft", &["--stateless", "list", "ruleset"]),
            ("ip", &["-brief", "address"]),
            ("ip", &["route", "show", "table", "all"]),
            ("ip", &["rule"]),
        ] {
            things.insert(format!("{program} {}", arguments.join(" ")), said(program, arguments));
        }
        sysctls(Path::new("/proc/sys/net"), &mut things);
        Host(things)
    }

    /// Panics with the difference unless the host is as it was and nothing of these processes is left.
    #[track_caller]
    pub(crate) fn is_as_before(&self, after: &[&Output]) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut differences = self.differences(&Host::now());
            differences.extend(after.iter().flat_map(|output| left(&output.watched)));
            if differences.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "left behind:\n{}", differences.join("\n"));
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn differences(&self, now: &Host) -> Vec<String> {
        // What is new is not looked at: the first rule of a machine loads modules with sysctls of their own.
        let changed = self.0.iter().filter(|(name, value)| now.0.get(*name) != Some(*value));
        changed
            .map(|(name, value)| {
                let now = now.0.get(name).map_or("nothing", String::as_str);
                format!("{name}: was\n{value}\nis\n{now}")
            })
            .collect()
    }
}

/// What is still there of a process and its lab.
fn left(watched: &Watched) -> Vec<String> {
    let mut left = Vec::new();
    left.extend(watched.owner_file().map(|path| format!("owner file {}", path.display())));
    if !watched.has_heir() {
        left.extend(watched.names().into_iter().map(|name| format!("network namespace {name}")));
    }
    left.extend(watched.loaded().into_iter().map(|id| format!("BPF program {id}")));
    left.extend(watched.living().into_iter().map(|pid| format!("process {pid}")));
    left
}

/// What a program says, without counters and comments; nothing if it is not there.
fn said(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else { return String::new() };
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // Packet counters of chains, and the seconds that a learned route is still good for.
    let steady = |line: &str| {
        let end = [" [", " expires "].iter().filter_map(|mark| line.find(mark)).min();
        line[..end.unwrap_or(line.len())].to_owned()
    };
    lines.map(steady).collect::<Vec<_>>().join("\n")
}

fn sysctls(directory: &Path, things: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| !RESTLESS.iter().any(|restless| path.ends_with(restless)));
    for path in paths {
        if path.is_dir() {
            sysctls(&path, things);
        // Some can only be written.
        } else if let Ok(value) = fs::read_to_string(&path) {
            things.insert(path.display().to_string(), value);
        }
    }
}

#[test]
fn the_guard_sees_a_changed_host() {
    let host = |rules: &str| Host([("rules".to_owned(), rules.to_owned())].into());
    assert_eq!(host("a").differences(&host("a")), Vec::<String>::new());
    assert_eq!(host("a").differences(&host("b")), ["rules: was\na\nis\nb"]);
    assert_eq!(host("a").differences(&Host(BTreeMap::new())), ["rules: was\na\nis\nnothing"]);
}

#[test]
fn the_guard_sees_a_process_that_was_left() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 60; true"]);
    let mut shell = Running::start(command);
    shell.reach("its child", |seen| !seen.children.is_empty());
    shell.signal(Signal::SIGKILL);
    let seen = shell.wait().watched;
    let [(child, _)] = seen.children.iter().collect::<Vec<_>>()[..] else { panic!("{seen:?}") };
    assert_eq!(left(&seen), [format!("process {child}")]);
    kill(Pid::from_raw(*child), Signal::SIGKILL).expect("it is there");
    Host(BTreeMap::new()).is_as_before(&[&Output {
        code: None,
        stdout: String::new(),
        stderr: String::new(),
        watched: seen,
    }]);
}
