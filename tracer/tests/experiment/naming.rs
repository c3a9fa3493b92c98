//! DNS, found guilty and ruled out, with numbers; and the lab's truth says the same.

use serde_json::Value;

use super::{Run, is_left_out};

fn rival<'a>(run: &'a Run, name: &str) -> &'a Value {
    let rivals = run.rows("rivals").iter();
    rivals.into_iter().find(|rival| rival["name"] == name).expect("it is one of the rivals")
}

fn count(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

/// No request of which report and truth say different things; how many names the truth says did not resolve.
fn unresolved(run: &Run) -> u64 {
    let agreement = run.hold(&run.json);
    assert_eq!(agreement.disagreements, Vec::new());
    assert_eq!(agreement.undetermined, Vec::<String>::new());
    agreement.kinds.get("its name unresolved").map_or(0, |count| *count as u64)
}

#[test]
fn a_dns_server_that_leaves_questions_unanswered_is_found_guilty() {
    if is_left_out("a_dns_server_that_leaves_questions_unanswered_is_found_guilty") {
        return;
    }
    let run = Run::new(&[
        "--setup",
        "readiness-prestop",
        "--resolve",
        "each",
        "--dns-loss",
        "0.02",
        "--duration",
        "28s",
    ]);
    let dns = rival(&run, "dns");
    assert_eq!((&dns["outcome"], &dns["share"]), (&"supported".into(), &1.0.into()), "{dns:#}");
    assert_eq!(run.report["hypothesis"]["outcome"], "refuted", "{:#}", run.report["hypothesis"]);
    let failed = count(&run.report["requests"]["failed"]);
    assert!(failed > 0);
    assert_eq!(count(&run.report["names"]["failed"]), failed);
    for row in run.rows("failed") {
        assert_eq!((&row["cause"], &row["symptom"]), (&"dns".into(), &"local".into()), "{row}");
    }
    let reasons = dns["reasons"].to_string();
    assert!(reasons.contains(&format!("{failed} of ")), "{reasons}");
    assert_eq!(unresolved(&run), failed);
}

#[test]
fn a_dns_server_that_answers_after_the_client_gave_up_is_found_guilty() {
    if is_left_out("a_dns_server_that_answers_after_the_client_gave_up_is_found_guilty") {
        return;
    }
    let run = Run::new(&[
        "--setup",
        "readiness-prestop",
        "--resolve",
        "each",
        "--dns-delay",
        "4s",
        "--duration",
        "24s",
    ]);
    assert_eq!(rival(&run, "dns")["outcome"], "supported", "{:#}", rival(&run, "dns"));
    let total = count(&run.report["requests"]["total"]);
    assert!(count(&run.report["failures"]["late"]["dns"]) > 0);
    assert_eq!((count(&run.report["names"]["failed"]), unresolved(&run)), (total, total));
}

#[test]
fn a_dns_server_that_answers_is_ruled_out_with_the_numbers_of_its_answers() {
    if is_left_out("a_dns_server_that_answers_is_ruled_out_with_the_numbers_of_its_answers") {
        return;
    }
    let run = Run::new(&["--resolve", "each", "--dns-delay", "20ms", "--duration", "36s"]);
    let dns = rival(&run, "dns");
    let is_late = count(&run.report["requests"]["late"]) > 0;
    // On a slow machine no port may come round late; never is it DNS.
    assert_eq!(dns["outcome"], if is_late { "refuted" } else { "not-observed" }, "{dns:#}");
    let names = &run.report["names"];
    assert_eq!(count(&names["asked"]), count(&run.report["requests"]["total"]));
    assert_eq!(count(&names["failed"]), 0);
    assert!(names["mean"].as_f64().is_some_and(|mean| mean >= 0.02), "{names}");
    let reasons = dns["reasons"].to_string();
    assert!(reasons.contains(&format!("0 of {} names", names["asked"])), "{reasons}");
    assert_eq!(unresolved(&run), 0);
}

#[test]
fn a_name_that_is_resolved_once_is_asked_for_by_each_worker_until_it_is_known() {
    if is_left_out("a_name_that_is_resolved_once_is_asked_for_by_each_worker_until_it_is_known") {
        return;
    }
    let from_outside = ["--from", "nodeport", "--resolve", "once", "--duration", "7s"];
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["lab", "--quick", "--format", "json"])
        .args(from_outside)
        .output()
        .expect("tracer starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the report is JSON");
    let names = &report["names"];
    assert!((1..=10).contains(&count(&names["asked"])), "{names}");
    assert_eq!(count(&names["failed"]), 0);
}
