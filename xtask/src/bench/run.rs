//! One timed run of another program, on certain cores.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// What a run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    /// From its start to its end, seconds.
    pub(super) wall: f64,
    /// Time on the processor, its own and the kernel's, seconds.
    pub(super) cpu: f64,
    /// The most memory that it held, bytes.
    pub(super) peak: f64,
}

/// What every run needs; named if it is not there.
pub(super) fn check_tools() -> Result<()> {
    for (tool, package) in [("taskset", "util-linux"), ("time", "time")] {
        if process::find(tool).is_none() {
            bail!("no `{tool}` here: install the package {package}");
        }
    }
    Ok(())
}

/// Runs the program on the cores; its output goes nowhere. `accepted` are the exit statuses of a run that did
/// its work; `scratch` is a file for what `time` says.
pub(super) fn measure(
    cores: &str,
    scratch: &Path,
    program: &Path,
    arguments: &[&OsStr],
    accepted: &[i32],
) -> Result<Cost> {
    // GNU time asks wait4(2), which tells of this one child and of nothing that ran before.
    let mut command = Command::new("time");
    command.args(["--quiet", "--format", "%e %U %S %M", "--output"]).arg(scratch);
    command.args(["taskset", "--cpu-list", cores]).arg(program).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().context("starting `time`")?;
    if !status.code().is_some_and(|code| accepted.contains(&code)) {
        bail!("{} failed ({status})", program.display());
    }
    let said = fs::read_to_string(scratch).context("what `time` says")?;
    cost(&said).with_context(|| format!("`time` says {said:?}"))
}

/// Wall, user and system seconds, and KiB.
fn cost(said: &str) -> Option<Cost> {
    let numbers: Vec<f64> =
        said.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [wall, user, system, kib] = numbers[..] else { return None };
    Some(Cost { wall, cpu: user + system, peak: kib * 1024.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_time_says_is_read_or_refused() {
        let cost_of = Cost { wall: 12.5, cpu: 11.25, peak: 2048.0 };
        assert_eq!(cost("12.50 11.00 0.25 2\n"), Some(cost_of));
        assert_eq!(cost("12.50 11.00 0.25\n"), None);
        assert_eq!(cost("Command terminated by signal 9"), None);
    }
}
