//! A lab that was killed hard in the middle of its rollout.

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::command::{Running, run, tracer};
use crate::host::Host;
use crate::{Needs, is_left_out};

#[test]
fn the_next_lab_clears_what_is_left_of_a_killed_one() {
    if is_left_out("the_next_lab_clears_what_is_left_of_a_killed_one", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let folder = TempDir::new().expect("a folder can be made");
    let trace = folder.path().join("killed.trace");
    let trace = trace.to_str().expect("a temporary folder has a plain name");
    let mut lab = Running::start(tracer(&["lab", "--quick", "--record", trace]));
    lab.reach("a pod of the rollout", |seen| {
        seen.names().iter().any(|name| name.contains("-web-2-"))
    });
    lab.signal(Signal::SIGKILL);
    let killed = lab.wait();
    assert_eq!(killed.code, None, "{killed:?}");
    // The kernel kills the pods with their parent and frees the programs; names and rules stay.
    assert!(killed.watched.loses_programs_and_children(), "{:?}", killed.watched);

    let next = run(tracer(&["lab", "--quick", "--duration", "1s"]));
    assert_eq!((next.code, next.stderr.as_str()), (Some(0), ""));
    host.is_as_before(&[&killed, &next]);

    // What was recorded until a second before is there.
    let replayed = run(tracer(&["replay", trace, "--format", "json"]));
    assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(3), ""));
    let report = replayed.report();
    assert!(report["requests"]["total"].as_u64() > Some(100), "{report}");
    assert!(report["losses"].to_string().contains("cut short"), "{report}");
}
