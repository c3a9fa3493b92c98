//! The quick lab as a test: the whole job, for real, and its verdict.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::Privilege;

/// The time that `tracer lab --quick` may take.
const ALLOWED: Duration = Duration::from_secs(60);

/// When it is stopped instead: later, so that slowness and a hang can be told apart.
const STOPPED: &str = "150";

/// Runs `tracer lab --quick`: it must end in time, with exit status 0, and its report must say `supported`.
pub(crate) fn run(tracer: &Path, privilege: Privilege) -> Result<()> {
    // timeout(1) stops it as Ctrl-C would, so that it puts everything back; the time to do so is limited too.
    let mut command = privilege.command("timeout")?;
    command.args(["--foreground", "--signal=INT", "--kill-after=30", STOPPED]);
    command.arg(tracer).args(["lab", "--quick", "--format", "json"]);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let began = Instant::now();
    let output = command.output().with_context(|| format!("starting {}", tracer.display()))?;
    let took = began.elapsed();
    let outcome = judge(&String::from_utf8_lossy(&output.stdout), output.status.code(), took)?;
    println!("{outcome} in {:.1} s", took.as_secs_f64());
    Ok(())
}

/// The report in a sentence, or what is wrong with it.
fn judge(report: &str, status: Option<i32>, took: Duration) -> Result<String> {
    match status {
        // timeout(1) says 124, or 137 after it had to kill.
        Some(124 | 137) => bail!("did not end within {STOPPED} s"),
        Some(0 | 3) => {}
        status => bail!(
            "ended with {}",
            status.map_or("a signal".to_owned(), |s| format!("exit status {s}"))
        ),
    }
    let report: Value = serde_json::from_str(report).context("its report is not JSON")?;
    let outcome =
        report.pointer("/hypothesis/outcome").and_then(Value::as_str).unwrap_or("no outcome");
    if outcome != "supported" || status != Some(0) {
        let reasons = report.pointer("/hypothesis/reasons").cloned().unwrap_or_default();
        bail!("outcome {outcome} with exit status {}: {reasons}", status.unwrap_or(-1));
    }
    if took > ALLOWED {
        bail!("took {:.1} s, allowed are {} s", took.as_secs_f64(), ALLOWED.as_secs());
    }
    let number = |pointer| report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let (total, late) = (number("/requests/total"), number("/requests/late"));
    Ok(format!("supported: {total} requests, {late} late failures"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"hypothesis": {"outcome": "supported", "reasons": []},
                             "requests": {"total": 900, "late": 4}}"#;

    #[test]
    fn a_supported_verdict_in_time_passes() {
        let said = judge(REPORT, Some(0), Duration::from_secs(50)).unwrap();
        assert_eq!(said, "supported: 900 requests, 4 late failures");
    }

    #[test]
    fn slowness_another_outcome_and_a_wrong_status_fail() {
        let error = |report: &str, status, seconds| {
            judge(report, status, Duration::from_secs(seconds)).expect_err("must fail").to_string()
        };
        assert_eq!(error(REPORT, Some(0), 61), "took 61.0 s, allowed are 60 s");
        assert_eq!(error(REPORT, Some(2), 5), "ended with exit status 2");
        assert_eq!(error(REPORT, Some(124), 150), "did not end within 150 s");
        assert_eq!(error("", Some(0), 5), "its report is not JSON");
        let other = REPORT.replace("supported", "inconclusive").replace("[]", r#"["ring full"]"#);
        assert_eq!(
            error(&other, Some(3), 5),
            r#"outcome inconclusive with exit status 3: ["ring full"]"#
        );
    }
}
