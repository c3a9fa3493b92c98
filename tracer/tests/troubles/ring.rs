//! A ring buffer that is too small for what it has to hold.

use nix::unistd::{SysconfVar, sysconf};

use crate::command::{run, tracer};
use crate::host::Host;
use crate::{Needs, is_left_out};

#[test]
fn an_overrun_makes_the_verdict_inconclusive_and_is_named() {
    if is_left_out("an_overrun_makes_the_verdict_inconclusive_and_is_named", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let lab = ["lab", "--quick", "--duration", "12s", "--format", "json"];
    // A page holds a few dozen records; 200 workers connect at once.
    let output = run(tracer(&[&lab[..], &["--ring-size", "4096", "--workers", "200"]].concat()));
    assert_eq!((output.code, output.stderr.as_str()), (Some(3), ""));
    assert!(output.watched.rings.contains(&4096), "{:?}", output.watched);
    let report = output.report();
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive");
    let reasons = report["hypothesis"]["reasons"].as_array().expect("a list");
    let is_named = |reason: &serde_json::Value| {
        let reason = reason.as_str().unwrap_or_default();
        reason.contains(" events were lost (ring buffer at net_dev_start_xmit) between ")
    };
    assert!(reasons.iter().any(is_named), "{reasons:?}");
    let losses = report["losses"].as_array().expect("a list");
    let of_ring = losses.iter().filter(|loss| {
        loss["source"].as_str().is_some_and(|source| source.starts_with("ring buffer at "))
    });
    let lost: u64 = of_ring.map(|loss| loss["count"].as_u64().expect("a count")).sum();
    assert!(lost > 0, "{losses:?}");
    host.is_as_before(&[&output]);
}

#[test]
fn a_size_that_is_no_power_of_two_is_rounded_up_as_the_help_says() {
    let help = run(tracer(&["record", "--help"])).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("rounded up to a power of two of pages"), "{help}");
    if is_left_out("a_size_that_is_no_power_of_two_is_rounded_up_as_the_help_says", Needs::Tracing)
    {
        return;
    }
    let record = ["record", "--service", "192.0.2.1:80", "--duration", "1s", "--ring-size"];
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().expect("every Linux has pages");
    let page = u32::try_from(page).expect("of a size that fits");
    for (asked, made) in [("1", page), ("40000", 65536), ("256K", 262144)] {
        let output = run(tracer(&[&record[..], &[asked]].concat()));
        assert_eq!(output.code, Some(3), "{}", output.stderr);
        assert!(output.watched.rings.contains(&made), "{asked}: {:?}", output.watched);
    }
}
