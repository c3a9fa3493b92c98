//! `tracer explain` over the recording of a real rollout: the stories that were asked for, and one clear line where
//! there are none.

use std::path::Path;
use std::process::{Command, Output};

use expect_test::expect;

fn explain(arguments: &[&str]) -> Output {
    let recording =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes-1.36-readiness");
    let tracer = env!("CARGO_BIN_EXE_tracer");
    Command::new(tracer).arg("explain").arg(recording).args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = explain(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(arguments: &[&str]) -> String {
    let output = explain(arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_request_is_told_with_its_packets() {
    expect![[r#"
        request 3389 from port 60940: connect-timeout (late), because of
        stale-entry-reuse
              7.757 s  #5922     web-8d8f7c6cd-p6pd2 answers for the last time
              8.054 s  #6095     web-8d8f7c6cd-p6pd2 is asked to go
              8.117 s  #6109     request 1521, which ends in connect-timeout, sends a
                                 SYN from the same port 60940; its entry points at
                                 10.244.1.20:8080
             10.054 s  #6134     web-8d8f7c6cd-p6pd2 is gone: its object is deleted
             25.543 s  #13699    request 3389 starts
             25.543 s  #13703    port 60940 comes round: the SYN meets the old entry
                                 (17.4 s old, SYN_SENT) to web-8d8f7c6cd-p6pd2
             26.562 s  #14400    the SYN is sent again (1), on the same entry
             27.586 s  #15125    the SYN is sent again (2), on the same entry
             28.544 s  #15814    it ends after 3.00 s: connect-timeout; its SYN met an
                                 entry 17.4 s old in SYN_SENT to web-8d8f7c6cd-p6pd2,
                                 gone for 17.8 s
    "#]]
    .assert_eq(&said(&["--request", "3389"]));
}

#[test]
fn a_port_has_the_story_of_each_of_its_failures() {
    let said = said(&["--port", "60914"]);
    let titles: Vec<&str> = said.lines().filter(|line| line.starts_with("request ")).collect();
    // The first made the entry, five more met it.
    assert_eq!(titles.len(), 6, "{said}");
    assert!(titles[0].contains("(early)") && titles[1..].iter().all(|it| it.contains("(late)")));
    assert_eq!(said.matches("comes round: the SYN meets the old entry").count(), 5);
}

#[test]
fn all_late_failures_are_told() {
    let said = said(&["--late"]);
    assert_eq!(said.lines().filter(|line| line.starts_with("request ")).count(), 51);
}

#[test]
fn late_is_what_the_options_say() {
    let said = refused(&["--late", "--late-after", "200s"]);
    assert!(said.starts_with("tracer: no request failed late in this trace; "), "{said}");
}

#[test]
fn what_is_not_there_is_said_in_one_line_with_what_there_is() {
    expect![[r#"
        tracer: no request 1 failed in this trace; failed requests are 1455, 1469, 1473, 1488, 1494 and 85 more (--request)
    "#]].assert_eq(&refused(&["--request", "1"]));
    expect![[r#"
        tracer: no request from port 7 failed in this trace; failed requests came from ports 32792, 32798, 32880, 32890, 32978 and 34 more (--port)
    "#]].assert_eq(&refused(&["--port", "7"]));
}

#[test]
fn one_of_the_three_is_asked_for() {
    for arguments in [&[][..], &["--late", "--port", "60914"]] {
        assert_eq!(explain(arguments).status.code(), Some(2));
    }
}
