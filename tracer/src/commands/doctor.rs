//! `tracer doctor`: tries what tracing and the lab need, and says what each missing thing costs. Leaves
//! nothing behind: the programs that it attaches are detached at once, and namespaces end with their thread.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::{fs, thread};

use anyhow::Context;
use clap::{Args, ValueEnum};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::utsname::uname;
use serde::Serialize;

use crate::cli::Exit;
use crate::kernel::capability::{self, Capabilities, Capability};
use crate::kernel::fields::{self, Feature, KernelTypes};
use crate::kernel::{KernelError, Settings, Tracer, has_programs, hz, with_causes};
use crate::sys::tool::{CONNTRACK, IP, IPTABLES_RESTORE};

/// Options of `tracer doctor`
#[derive(Debug, Args)]
pub struct Options {
    /// How the findings are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table
    Text,
    /// JSON
    Json,
}

/// Examines the machine, prints the findings, and fails if recording or the lab can't work.
///
/// # Errors
/// If recording or the lab can't work, with what to do; or if stdout can't be written.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    let examination = Examination::new();
    let mut out = io::stdout().lock();
    let text = match options.format {
        Format::Text => examination.to_string(),
        Format::Json => serde_json::to_string_pretty(&examination)? + "\n",
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("printing the findings")?;
    match examination.checks.iter().find(|check| check.state == State::Missing) {
        None => Ok(Exit::Done),
        Some(first) => anyhow::bail!(
            "{} can't work here: {}: {}",
            if examination.record { "the lab" } else { "recording" },
            first.name,
            first.remedy.as_deref().unwrap_or(&first.found)
        ),
    }
}

/// How a thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// There, and working.
    Ok,
    /// Not there: something is told less well, but all works.
    Less,
    /// Not there: recording, or the lab, can't work.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Check {
    name: String,
    state: State,
    /// What was found.
    found: String,
    /// What it costs, if it isn't there.
    cost: Option<String>,
    /// What to do, if it isn't there.
    #[serde(rename = "do")]
    remedy: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, found: impl Into<String>) -> Check {
        let (name, found) = (name.into(), found.into());
        Check { name, state: State::Ok, found, cost: None, remedy: None }
    }

    fn less(name: impl Into<String>, found: impl Into<String>, cost: &str) -> Check {
        Check { state: State::Less, cost: Some(cost.to_owned()), ..Check::ok(name, found) }
    }

    fn missing(
        name: impl Into<String>,
        found: impl Into<String>,
        cost: &str,
        remedy: &str,
    ) -> Check {
        let remedy = Some(remedy.to_owned());
        Check { state: State::Missing, remedy, ..Check::less(name, found, cost) }
    }
}

/// All that was looked at, the things that recording needs first.
#[derive(Debug, Serialize)]
struct Examination {
    /// Whether `tracer record` can work.
    record: bool,
    /// Whether `tracer lab` can work.
    lab: bool,
    checks: Vec<Check>,
}

const NO_TRACING: &str = "nothing can be traced";
const NO_LAB: &str = "the lab can't be built";

impl Examination {
    fn new() -> Examination {
        let mut checks = vec![machine(), programs()];
        checks.extend(account());
        checks.push(lockdown());
        checks.push(memlock());
        checks.push(ticks());
        checks.extend(types());
        checks.extend(hooks());
        let works = |checks: &[Check]| checks.iter().all(|check| check.state != State::Missing);
        let record = works(&checks);
        checks.extend(lab());
        let lab = works(&checks);
        Examination { record, lab, checks }
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for check in &self.checks {
            let state = match check.state {
                State::Ok => "ok",
                State::Less => "less",
                State::Missing => "MISSING",
            };
            write!(f, "{state:<7}  {:<width$}  {}", check.name, check.found)?;
            if let Some(cost) = &check.cost {
                write!(f, ": {cost}")?;
            }
            writeln!(f)?;
        }
        let can = |works| if works { "can work here" } else { "can't work here" };
        writeln!(f)?;
        writeln!(f, "tracer record {}, tracer lab {}", can(self.record), can(self.lab))
    }
}

fn machine() -> Check {
    match uname() {
        Ok(name) => Check::ok(
            "kernel",
            format!("{} {}", name.release().display(), name.machine().display()),
        ),
        Err(errno) => Check::less("kernel", errno.desc(), "its release is not in the trace"),
    }
}

fn programs() -> Check {
    if has_programs() {
        Check::ok("BPF programs", "in this binary")
    } else {
        Check::missing(
            "BPF programs",
            "not in this binary",
            NO_TRACING,
            "build it with cargo xtask build",
        )
    }
}

fn account() -> Vec<Check> {
    let mut checks = Vec::new();
    match Capabilities::of_self() {
        Ok(held) => {
            let (tracing, lab) = (held.missing_for_tracing(), held.missing_for_lab());
            for capability in Capability::ALL {
                checks.push(if tracing.contains(&capability) {
                    Check::missing(capability.name(), "not held", NO_TRACING, "run it as root")
                } else if lab.contains(&capability) {
                    // Recording works without; among the lab's things it is missing.
                    Check::less(capability.name(), "not held", NO_LAB)
                } else if held.has(capability) {
                    Check::ok(capability.name(), "held")
                } else {
                    Check::ok(capability.name(), "not held, but CAP_SYS_ADMIN stands for it")
                });
            }
        }
        Err(error) => {
            checks.push(Check::less("capabilities", error.to_string(), "they can't be told"));
        }
    }
    checks.push(if capability::in_user_namespace() {
        Check::missing(
            "user namespace",
            "a container's own",
            NO_TRACING,
            "run it as root of the machine, not of a container's user namespace",
        )
    } else {
        Check::ok("user namespace", "the first")
    });
    checks
}

fn lockdown() -> Check {
    const NAME: &str = "lockdown";
    // kernel_lockdown(7): the mode in force stands in brackets.
    let Ok(modes) = fs::read_to_string("/sys/kernel/security/lockdown") else {
        return Check::ok(NAME, "not told: securityfs is not mounted or the kernel has none");
    };
    let mode = modes.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    if mode == "confidentiality" {
        Check::missing(NAME, mode, NO_TRACING, "boot without lockdown=confidentiality")
    } else {
        Check::ok(NAME, mode)
    }
}

fn memlock() -> Check {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((_, RLIM_INFINITY)) => Check::ok("RLIMIT_MEMLOCK", "unlimited"),
        Ok((_, hard)) => Check::ok(
            "RLIMIT_MEMLOCK",
            format!("{} KiB; matters before Linux 5.11 only", hard / 1024),
        ),
        Err(errno) => Check::ok("RLIMIT_MEMLOCK", errno.desc()),
    }
}

fn ticks() -> Check {
    match hz::ticks_per_second() {
        Some(hz) => Check::ok("tick rate", format!("{hz} a second")),
        None => Check::less("tick rate", "not told", fields::cost(Feature::Life)),
    }
}

fn types() -> Vec<Check> {
    let types = match KernelTypes::read() {
        Ok(types) => types,
        Err(error) => {
            return vec![Check::missing(
                "BTF",
                with_causes(&error),
                NO_TRACING,
                "use a kernel with CONFIG_DEBUG_INFO_BTF, and mount /sys",
            )];
        }
    };
    let offsets = fields::resolve(&types);
    let mut checks = vec![Check::ok("BTF", types.names().join(", "))];
    for (field, offset) in offsets.fields() {
        let name = format!("{}.{}", field.owner, field.member);
        checks.push(match (offset, offsets.off.get(&field.feature)) {
            (Some(offset), _) => {
                let part = offsets.found_in.get(field.owner).copied().unwrap_or("?");
                Check::ok(name, format!("at byte {offset} in {part}"))
            }
            (None, why) => {
                let why = why.map_or("not found", String::as_str);
                let cost = fields::cost(field.feature);
                match field.feature {
                    Feature::Packets => Check::missing(name, why, cost, "use another kernel"),
                    Feature::Entry => {
                        Check::missing(name, why, cost, "load conntrack: modprobe nf_conntrack")
                    }
                    _ => Check::less(name, why, cost),
                }
            }
        });
    }
    checks
}

/// Loads and attaches the programs for real, watching an address that nobody has (RFC 5737).
fn hooks() -> Vec<Check> {
    let nobody = ([192, 0, 2, 1], 1).into();
    match Tracer::attach(&Settings::new(vec![nobody])) {
        Ok(tracer) => tracer
            .hooks()
            .into_iter()
            .map(|status| {
                let name = status.hook.name();
                match (status.attached, status.note) {
                    (true, None) => Check::ok(name, "attached"),
                    (true, Some(note)) => Check::less(name, "attached", &note),
                    (false, note) => Check::less(
                        name,
                        format!("not attached: {}", note.unwrap_or_default()),
                        "a finding that needs its silence stays inconclusive",
                    ),
                }
            })
            .collect(),
        // Said above already.
        Err(
            KernelError::NoPrograms
            | KernelError::Capability { .. }
            | KernelError::UserNamespace
            | KernelError::Fields(_)
            | KernelError::Kernel { .. },
        ) => Vec::new(),
        Err(error) => vec![Check::missing(
            "attaching",
            with_causes(&error),
            NO_TRACING,
            "the kernel refuses; lockdown, seccomp or a policy may stand in the way",
        )],
    }
}

fn lab() -> Vec<Check> {
    let mut checks: Vec<_> = [IP, IPTABLES_RESTORE, CONNTRACK]
        .into_iter()
        .map(|tool| match tool.find() {
            Ok(path) => Check::ok(tool.name, path.display().to_string()),
            Err(_) => Check::missing(
                tool.name,
                "not on this machine",
                NO_LAB,
                &format!("install it: apt-get install {}", tool.package),
            ),
        })
        .collect();
    let lacking = Capabilities::of_self().map(Capabilities::missing_for_lab).unwrap_or_default();
    checks.extend(lacking.into_iter().map(|capability| {
        Check::missing(format!("{capability} (lab)"), "not held", NO_LAB, "run it as root")
    }));
    let namespaces = [
        ("network namespaces", CloneFlags::CLONE_NEWNET),
        ("PID namespaces", CloneFlags::CLONE_NEWPID),
    ];
    checks.extend(namespaces.map(|(name, flag)| {
        // In a thread of its own, which takes the namespace with it when it ends.
        match thread::spawn(move || unshare(flag)).join() {
            Ok(Ok(())) => Check::ok(name, "can be made"),
            Ok(Err(errno)) => Check::missing(name, errno.desc(), NO_LAB, "run it as root"),
            Err(_) => Check::missing(name, "the attempt failed", NO_LAB, "run it as root"),
        }
    }));
    let conntrack = "/proc/sys/net/netfilter/nf_conntrack_max";
    checks.push(if Path::new(conntrack).exists() {
        Check::ok("conntrack in the kernel", "there")
    } else {
        Check::less(
            "conntrack in the kernel",
            "not loaded",
            "the lab's rules load it; on a node without it nothing is translated",
        )
    });
    checks
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_thing_has_one_line_with_its_cost() {
        let examination = Examination {
            record: true,
            lab: false,
            checks: vec![
                Check::ok("BTF", "vmlinux"),
                Check::less("kfree_skb", "attached", "without reasons"),
                Check::missing("conntrack", "not in PATH", NO_LAB, "install it"),
            ],
        };
        expect![[r#"
            ok       BTF        vmlinux
            less     kfree_skb  attached: without reasons
            MISSING  conntrack  not in PATH: the lab can't be built

            tracer record can work here, tracer lab can't work here
        "#]]
        .assert_eq(&examination.to_string());
    }
}
