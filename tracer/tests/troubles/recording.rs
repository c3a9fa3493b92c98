//! `tracer record`, and where a trace may go.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tracer::lab::{Lab, LabSettings};
use tracer::loadgen::client::{self, ClientSettings};
use tracer::sys::stop::Stop;

use crate::command::{Running, TRACER, run, tracer, tracer_in_mounts};
use crate::host::Host;
use crate::{Needs, is_left_out};

#[test]
fn a_place_that_cannot_be_had_is_refused_before_anything_is_done() {
    if is_left_out("a_place_that_cannot_be_had_is_refused_before_anything_is_done", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().to_str().expect("a temporary folder has a plain name");
    let [letter, read_only] = ["letter", "read-only"].map(|name| format!("{path}/{name}"));
    fs::write(&letter, "a letter").expect("it is ours");
    fs::create_dir(&read_only).expect("it is ours");
    let mount = format!("mount -t tmpfs -o ro none {read_only}");
    let cases = [
        (
            &[letter.clone()][..],
            "letter exists; remove it, choose another name, or replace it with --force",
        ),
        (
            &[letter.clone(), "--force".to_owned()],
            "letter exists and is not a trace of tracer, so it is not replaced",
        ),
        (std::slice::from_ref(&read_only), "cannot create read-only: Is a directory (os error 21)"),
        (
            &[format!("{path}/no/x.trace")],
            "cannot create no/x.trace: No such file or directory (os error 2)",
        ),
        (
            &[format!("{read_only}/x.trace")],
            "cannot create read-only/x.trace: Read-only file system (os error 30)",
        ),
    ];
    for (trace, expected) in cases {
        for command in [&["lab", "--record"][..], &["record", "--service", "192.0.2.1:80"]] {
            let words = command.iter().copied().chain(trace.iter().map(String::as_str));
            let output = run(tracer_in_mounts(&mount, &words.collect::<Vec<_>>()));
            assert_eq!(output.refusal().replace(&format!("{path}/"), ""), expected);
            assert_eq!(output.watched.index, None, "no lab was built");
            host.is_as_before(&[&output]);
        }
    }
    assert_eq!(fs::read_to_string(letter).expect("it is still there"), "a letter");
}

#[test]
fn a_service_that_nobody_uses_has_nothing_to_judge() {
    if is_left_out("a_service_that_nobody_uses_has_nothing_to_judge", Needs::Tracing) {
        return;
    }
    let host = Host::now();
    for service in ["192.0.2.1:80", "[2001:db8::1]:80"] {
        let record = ["record", "--service", service, "--duration", "1s", "--format", "json"];
        let output = run(tracer(&record));
        assert_eq!(output.code, Some(3), "{}", output.stderr);
        assert_eq!(output.line(), format!("tracing {service}; Ctrl-C ends it"));
        let reasons = output.report()["hypothesis"]["reasons"].to_string();
        assert!(
            reasons.contains("no packet and no request was seen: is the Service's address"),
            "{reasons}"
        );
        // Nothing happened, but for as long as that.
        let duration = output.report()["clock"]["duration"].as_f64();
        assert!(duration >= Some(1.0), "{duration:?}");
        host.is_as_before(&[&output]);
    }
}

/// A Service of a lab that the recorder knows nothing of, with pods and rollouts that nobody tells it of.
#[test]
fn beside_a_lab_the_verdict_says_what_it_does_not_know() {
    if is_left_out("beside_a_lab_the_verdict_says_what_it_does_not_know", Needs::Lab) {
        return;
    }
    let settings = LabSettings {
        program: TRACER.into(),
        pod_start_delay: Duration::from_millis(300),
        ..LabSettings::default()
    };
    let lab = Lab::build(&settings, &Stop::default()).expect("a lab can be built");
    let host = Host::now();
    let folder = TempDir::new().expect("a folder can be made");
    let trace = folder.path().join("x.trace");
    let trace = trace.to_str().expect("a temporary folder has a plain name");
    let service = lab.service().to_string();
    let mut record =
        Running::start(tracer(&["record", "--service", &service, trace, "--format", "json"]));
    // The header is there when everything is attached.
    record.reach("tracing", |_| fs::metadata(trace).is_ok_and(|file| file.len() > 0));
    let load = ClientSettings {
        duration: Some(Duration::from_secs(1)),
        ..ClientSettings::new(lab.service())
    };
    let client = lab.in_client(move || client::run(&load, &Stop::default(), &mut |_| {}));
    client.expect("a thread").join().expect("no panic").expect("inside").expect("it can ask");
    record.signal(Signal::SIGINT);
    let output = record.wait();
    assert_eq!(output.code, Some(3), "{}", output.stderr);
    assert_eq!(output.line(), format!("tracing {service}; Ctrl-C ends it"));
    let report = output.report();
    let reasons = report["hypothesis"]["reasons"].to_string();
    let notes = report["notes"].to_string();
    assert!(notes.contains("there is no request log: a request here is a connect"), "{notes}");
    assert!(
        reasons.contains("no event tells of pods: which backends were gone is not known"),
        "{reasons}"
    );
    assert!(report["counters"]["packets"].as_u64() > Some(100), "{report}");
    let replayed = run(tracer(&["replay", trace, "--format", "json"]));
    assert_eq!((replayed.code, &replayed.stdout), (output.code, &output.stdout));
    host.is_as_before(&[&output]);
}
