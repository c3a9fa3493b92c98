//! The lab, for real: needs root. Without it each test says that it was left out.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use expect_test::expect;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Socket, Type};
use tracer::lab::truth::{ClientEnd, ClientRow, Judged, judge};
use tracer::lab::{Lab, LabError, LabSettings, SETUPS};
use tracer::model::{
    ClusterEvent, Event, EventKind, MonoNs, NetnsRole, PodChange, RolloutChange, Symptom,
};
use tracer::sys::owner::{self, OwnerError};
use tracer::sys::process::is_running;
use tracer::sys::stop::Stop;
use tracer::sys::{clock, netns, signals};

/// Set in the process that builds a lab in order to be killed.
const VICTIM: &str = "TRACER_TEST_LAB_VICTIM";

fn is_left_out(name: &str) -> bool {
    let left_out = !nix::unistd::geteuid().is_root();
    if left_out {
        eprintln!("left out: {name}: needs root");
    }
    left_out
}

fn settings() -> LabSettings {
    let program = std::env::var_os("TRACER_TEST_POD");
    let program =
        program.map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_tracer")), PathBuf::from);
    LabSettings { program, pod_start_delay: Duration::from_millis(300), ..LabSettings::default() }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What of the host a lab could have changed by mistake: its rules without packet counters, what has the
/// lab's addresses or device names, and its sysctls.
fn host() -> String {
    let rules = output("iptables-save", &[]);
    let rules = rules.lines().filter(|line| !line.starts_with(['#', ':'])).collect::<Vec<_>>();
    let sysctl =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/net/{name}")).unwrap_or_default();
    [
        rules.join("\n"),
        ours(&output("ip", &["route"])),
        ours(&output("ip", &["-brief", "link"])),
        sysctl("ipv4/ip_forward"),
        sysctl("ipv4/ip_local_port_range"),
        sysctl("ipv4/conf/all/send_redirects"),
        sysctl("netfilter/nf_conntrack_tcp_timeout_syn_sent"),
        sysctl("netfilter/nf_conntrack_tcp_timeout_established"),
    ]
    .join("\n")
}

/// The lines that a lab in the wrong namespace would have made.
fn ours(lines: &str) -> String {
    let marks = ["br0", "client", "web-", "blackhole", "n1@", "n2@"];
    lines.lines().filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
}

fn names_of(index: u8) -> Vec<String> {
    let prefix = format!("tracer-lab{index}-");
    netns::names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

fn processes_of(index: u8) -> Vec<i32> {
    names_of(index)
        .iter()
        .flat_map(|name| netns::processes(name).expect("the name is there"))
        .collect()
}

/// One request from the client's pod; the answer's body.
fn ask(lab: &Lab) -> std::io::Result<String> {
    let service = lab.service();
    let answer = lab.client_netns().run(move || {
        let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(3))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    answer.expect("the client's namespace is there")
}

#[test]
fn a_lab_serves_and_leaves_the_machine_as_it_was() {
    if is_left_out("a_lab_serves_and_leaves_the_machine_as_it_was") {
        return;
    }
    let before = host();
    let lab = Lab::build(&settings().quick(), &Stop::default()).expect("a lab can be built");
    let index = lab.index();
    let answer = ask(&lab).expect("the Service answers");
    assert!(answer.contains(" 200 OK"), "{answer}");
    let pods = processes_of(index);
    assert_eq!(pods.len(), 3, "three pods, each one process");
    assert_eq!(names_of(index).len(), 7, "upstream, two nodes, client, three pods");
    assert_eq!(host(), before, "the host is untouched while a lab stands");

    let client_node = lab.netns_of(NetnsRole::ClientNode).expect("there is one");
    let client = lab.netns_of(NetnsRole::Client).expect("there is one");
    let sysctls = lab.sysctls().expect("they can be read");
    let value = |netns, name| {
        let found = sysctls.iter().find(|sysctl| sysctl.netns == netns && sysctl.name == name);
        found.map(|sysctl| sysctl.value.clone()).expect("it was read")
    };
    assert_eq!(value(client_node.id, "net.netfilter.nf_conntrack_tcp_timeout_syn_sent"), "20");
    assert_eq!(
        value(client_node.id, "net.netfilter.nf_conntrack_tcp_timeout_established"),
        "86400"
    );
    assert_eq!(value(client.id, "net.ipv4.ip_local_port_range"), "32768 36863");

    lab.teardown().expect("a lab can be taken down");
    lab.teardown().expect("a second time there is nothing to do");
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)), "no pod is left of {pods:?}");
    drop(lab);
    assert_eq!(host(), before);
}

#[test]
fn a_pod_is_alone_in_its_pid_namespace_and_the_panicking_owner_takes_it_along() {
    if is_left_out("a_pod_is_alone_in_its_pid_namespace_and_the_panicking_owner_takes_it_along") {
        return;
    }
    let lab = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let index = lab.index();
    let pods = processes_of(index);
    for pid in &pods {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let numbers =
            status.lines().find(|line| line.starts_with("NSpid:")).expect("since Linux 4.1");
        assert_eq!(numbers.split_whitespace().last(), Some("1"), "{numbers}");
    }
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _lab = lab;
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(panic.is_err());
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)));
}

#[test]
fn two_labs_at_once_have_names_and_addresses_of_their_own() {
    if is_left_out("two_labs_at_once_have_names_and_addresses_of_their_own") {
        return;
    }
    let first = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let second = Lab::build(&settings(), &Stop::default()).expect("another one beside it");
    assert_ne!(first.index(), second.index());
    assert_ne!(first.service(), second.service());
    let taken = LabSettings { index: Some(first.index()), ..settings() };
    match Lab::build(&taken, &Stop::default()) {
        Err(LabError::Owner(OwnerError::Alive { index, pid })) => {
            assert_eq!((index, pid), (first.index(), std::process::id().to_string()));
        }
        other => panic!("the first lab's index is in use, but: {other:?}"),
    }
    drop(first);
    ask(&second).expect("the second lab serves on");
}

#[test]
fn a_name_that_is_not_ours_is_left_alone() {
    if is_left_out("a_name_that_is_not_ours_is_left_alone") {
        return;
    }
    let name = "tracer-lab63-somebody";
    netns::create(&[name]).expect("the name is free");
    let wanted = LabSettings { index: Some(63), ..settings() };
    let result = Lab::build(&wanted, &Stop::default()).map(drop);
    let is_there = netns::names().contains(&name.to_owned());
    netns::delete(name).expect("it is there");
    assert!(is_there, "the lab removed what it did not make");
    expect!["network namespace tracer-lab63-somebody is not ours: remove it with `ip netns del tracer-lab63-somebody`"]
        .assert_eq(&result.expect_err("the name is taken").to_string());
}

#[test]
fn a_pod_that_cannot_run_ends_the_lab_with_its_own_words() {
    if is_left_out("a_pod_that_cannot_run_ends_the_lab_with_its_own_words") {
        return;
    }
    let broken = LabSettings { program: PathBuf::from("/bin/ls"), ..settings() };
    let error = Lab::build(&broken, &Stop::default()).map(drop).expect_err("ls serves nothing");
    let text = error.to_string();
    assert!(text.starts_with("pod web-1-") && text.contains("ended by itself"), "{text}");
    assert!(text.contains("ls: "), "what it said is told: {text}");
}

#[test]
fn a_stopped_build_leaves_nothing() {
    if is_left_out("a_stopped_build_leaves_nothing") {
        return;
    }
    let stop = Stop::default();
    let slow =
        LabSettings { pod_start_delay: Duration::from_secs(20), index: Some(62), ..settings() };
    let result = std::thread::scope(|scope| {
        let build = scope.spawn(|| Lab::build(&slow, &stop).map(drop));
        while processes_of(62).len() < 3 {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.request();
        build.join().expect("it does not panic")
    });
    assert!(matches!(result, Err(LabError::Stopped)), "{result:?}");
    assert_eq!(names_of(62), Vec::<String>::new());
}

/// Not a test of its own: the process that others signal or kill.
#[test]
fn the_victim_builds_a_lab_and_waits() {
    let Some(patience) = std::env::var_os(VICTIM) else { return };
    let stop = Stop::default();
    signals::watch(&stop, owner::sweep_own).expect("signals can be watched");
    let lab = Lab::build(&settings(), &stop).expect("a lab can be built");
    println!("\nindex {}", lab.index());
    while patience == "deaf" || !stop.is_requested() {
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("\nstopped");
    // Leaves by returning: dropping the lab takes it down.
}

/// Starts a process that builds a lab, and waits until it stands.
fn victim(patience: &str) -> (Child, impl Iterator<Item = String>, u8) {
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", "the_victim_builds_a_lab_and_waits", "--nocapture"])
        .env(VICTIM, patience)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    let index = lines.find_map(|line| line.strip_prefix("index ")?.parse().ok());
    (child, lines, index.expect("the victim built a lab"))
}

fn terminate(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"));
    kill(pid, Signal::SIGTERM).expect("it is our child");
}

#[test]
fn a_signal_takes_the_lab_down() {
    if is_left_out("a_signal_takes_the_lab_down") {
        return;
    }
    let (mut child, mut lines, index) = victim("attentive");
    let pods = processes_of(index);
    terminate(&child);
    assert!(lines.any(|line| line == "stopped"));
    assert!(child.wait().expect("it is our child").success());
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)), "no pod is left of {pods:?}");
}

#[test]
fn a_second_signal_ends_what_does_not_stop_and_still_cleans_up() {
    if is_left_out("a_second_signal_ends_what_does_not_stop_and_still_cleans_up") {
        return;
    }
    let (mut child, _lines, index) = victim("deaf");
    let pods = processes_of(index);
    terminate(&child);
    // Two of the same signal at once would be one.
    while child.try_wait().expect("it is our child").is_none() && !names_of(index).is_empty() {
        std::thread::sleep(Duration::from_millis(100));
        terminate(&child);
    }
    assert_eq!(child.wait().expect("it is our child").code(), Some(130));
    assert_eq!(names_of(index), Vec::<String>::new());
    assert!(pods.iter().all(|pid| !is_running(*pid)), "no pod is left of {pods:?}");
}

#[test]
fn a_dead_owner_is_cleared_and_a_living_one_is_not() {
    if is_left_out("a_dead_owner_is_cleared_and_a_living_one_is_not") {
        return;
    }
    let living = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let (mut victim, _lines, dead) = victim("attentive");
    // A process that does not die with its parent, as a pod would not that someone else wrote.
    let orphan = Command::new("ip")
        .args(["netns", "exec", &format!("tracer-lab{dead}-n2"), "setsid", "sleep", "600"])
        .spawn()
        .expect("ip is installed");
    let orphan_pid = i32::try_from(orphan.id()).expect("a pid fits");
    let name = format!("tracer-lab{dead}-n2");
    while !netns::processes(&name).expect("it is there").contains(&orphan_pid) {
        std::thread::sleep(Duration::from_millis(5));
    }

    victim.kill().expect("it runs");
    victim.wait().expect("it was started here");
    assert_eq!(names_of(dead).len(), 7, "SIGKILL leaves the namespaces");

    let next = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    assert!(!is_running(orphan_pid), "the orphan is killed");
    let taken_over = if next.index() == dead { 7 } else { 0 };
    assert_eq!(names_of(dead).len(), taken_over, "nothing of the dead lab is left");
    let mut orphan = orphan;
    orphan.wait().expect("it was started here");
    ask(&living).expect("the living lab was not touched");
}

#[test]
fn a_dead_address_is_silent() {
    if is_left_out("a_dead_address_is_silent") {
        return;
    }
    let lab = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let second = 100 + lab.index();
    let dead = [[10, second, 1, 99], [10, second, 2, 99], [10, second, 96, 99]];
    // An unreachable route would answer at once, a failed neighbour after 3 s.
    let patience = Duration::from_secs(4);
    let answers = dead.map(|address| {
        let address = SocketAddr::from((address, 8080));
        lab.in_client(move || TcpStream::connect_timeout(&address, patience).map(drop))
            .expect("a thread can be had")
    });
    for (thread, address) in answers.into_iter().zip(dead) {
        let result = thread.join().expect("it does not panic").expect("it can enter");
        let error = result.expect_err("nobody is there");
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{address:?} answered: {error}");
    }
}

/// A rollout's events as words, and how long it took until complete and until the last old pod was gone.
fn roll(lab: &Lab) -> (Vec<String>, Vec<Event>) {
    let events = Mutex::new(Vec::new());
    let sink = |event| events.lock().expect("nobody panics").push(event);
    lab.rollout(&sink, &Stop::default()).expect("a rollout can be done");
    let events = events.into_inner().expect("nobody panics");
    let words = events.iter().filter_map(|event| match &event.kind {
        EventKind::Cluster(ClusterEvent::Pod { name, change, .. }) => {
            Some(format!("{name} {change:?}"))
        }
        EventKind::Cluster(ClusterEvent::Rollout { change, .. }) => Some(format!("{change:?}")),
        _ => None,
    });
    (words.collect(), events)
}

#[test]
fn a_rollout_replaces_every_pod_one_at_a_time() {
    if is_left_out("a_rollout_replaces_every_pod_one_at_a_time") {
        return;
    }
    let lab = Lab::build(&settings(), &Stop::default()).expect("a lab can be built");
    let old = processes_of(lab.index());
    let (words, events) = roll(&lab);
    // A deleted pod goes in its own time, so the order of those events is not fixed.
    let order: Vec<_> = words.iter().filter(|words| !words.ends_with("Deleted")).collect();
    expect![[r#"
        [
            "Started",
            "web-2-4 Added",
            "web-2-4 Ready",
            "web-1-1 Asked { grace: 30s }",
            "web-2-5 Added",
            "web-2-5 Ready",
            "web-1-2 Asked { grace: 30s }",
            "web-2-6 Added",
            "web-2-6 Ready",
            "web-1-3 Asked { grace: 30s }",
            "Finished",
        ]
    "#]]
    .assert_debug_eq(&order);
    let deleted: BTreeSet<_> = words.iter().filter(|words| words.ends_with("Deleted")).collect();
    assert_eq!(deleted.len(), 3);
    assert!(events.is_sorted_by_key(|event| event.time), "events come when they happen");
    assert!(old.iter().all(|pid| !is_running(*pid)), "no old pod is left of {old:?}");
    assert_eq!(names_of(lab.index()).len(), 7);
    ask(&lab).expect("the new pods serve");

    let truth = lab.finish_truth().expect("every look worked");
    let last = truth.rules.iter().rfind(|change| change.node == "n1").expect("rules were set");
    assert_eq!(last.endpoints.len(), 3);
    for pod in truth.pods.iter().filter(|pod| pod.name.starts_with("web-1-")) {
        let (asked, gone) = (pod.asked.expect("asked"), pod.disconnected.expect("gone"));
        for node in ["n1", "n2"] {
            let change = truth.rules.iter().find(|change| {
                change.node == node
                    && change.before > asked
                    && !change.endpoints.contains(&pod.address)
            });
            let lag = change.expect("the rules follow").before.since(asked);
            assert!(lag >= Duration::from_millis(300), "{} on {node}: {lag:?}", pod.name);
            assert!(lag < Duration::from_millis(1500), "{} on {node}: {lag:?}", pod.name);
        }
        assert!(gone.since(asked) >= Duration::from_millis(100), "the teardown takes its time");
    }
}

#[test]
fn prestop_keeps_a_pod_until_the_rules_have_followed() {
    if is_left_out("prestop_keeps_a_pod_until_the_rules_have_followed") {
        return;
    }
    let setup =
        SETUPS.into_iter().find(|setup| setup.name == "readiness-prestop").expect("there is one");
    let lab = Lab::build(&LabSettings { setup, ..settings() }, &Stop::default())
        .expect("it can be built");
    let began = Instant::now();
    let (words, events) = roll(&lab);
    let finished = words.iter().position(|words| words == "Finished").expect("it is complete");
    let deleted = words.iter().filter(|words| words.ends_with("Deleted"));
    assert_eq!(deleted.count(), 3);
    assert!(words[finished..].iter().any(|words| words == "web-1-3 Deleted"), "{words:?}");
    let time_of = |wanted: &dyn Fn(&EventKind) -> bool| {
        events
            .iter()
            .rfind(|event| wanted(&event.kind))
            .map(|event| event.time)
            .expect("it happened")
    };
    let complete = time_of(&|kind| {
        matches!(
            kind,
            EventKind::Cluster(ClusterEvent::Rollout { change: RolloutChange::Finished, .. })
        )
    });
    let gone = time_of(&|kind| {
        matches!(kind, EventKind::Cluster(ClusterEvent::Pod { change: PodChange::Deleted, .. }))
    });
    assert!(gone.since(complete) > Duration::from_secs(5), "complete while the last one sleeps");
    assert!(began.elapsed() < Duration::from_secs(30));
    for pod in lab.truth().pods.iter().filter(|pod| pod.name.starts_with("web-1-")) {
        let (asked, terminated) = (pod.asked.expect("asked"), pod.terminated.expect("terminated"));
        assert!(terminated.since(asked) >= Duration::from_secs(5), "{}", pod.name);
    }
}

/// Sends one request after the other, each on a connection of its own, until told to stop.
fn work(target: SocketAddr, worker: u64, stop: &Stop) -> Vec<ClientRow> {
    let mut rows = Vec::new();
    while !stop.is_requested() {
        let id = worker * 1_000_000 + rows.len() as u64;
        let start = clock::now();
        let (port, connected, end) = request(target, start);
        let total = clock::now().since(start);
        rows.push(ClientRow { id, start, port, connected, total, end });
    }
    rows
}

fn request(target: SocketAddr, start: MonoNs) -> (Option<u16>, Option<Duration>, ClientEnd) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket can be had");
    socket.set_nonblocking(true).expect("it is a socket");
    // Nonblocking, so that the port is known before the connect has ended, however it ends.
    let _ = socket.connect(&target.into());
    let port = socket
        .local_addr()
        .ok()
        .and_then(|address| address.as_socket())
        .map(|address| address.port());
    let failed = |symptom| ClientEnd::Failed(symptom);
    let mut poll = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    if nix::poll::poll(&mut poll, 3000u16).expect("poll works") == 0 {
        return (port, None, failed(Symptom::ConnectTimeout));
    }
    if let Some(error) = socket.take_error().expect("it is a socket") {
        let symptom = match error.kind() {
            ErrorKind::ConnectionRefused => Symptom::Refused,
            _ => Symptom::Unreachable,
        };
        return (port, None, failed(symptom));
    }
    let connected = Some(clock::now().since(start));
    socket.set_nonblocking(false).expect("it is a socket");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(3))).expect("not zero");
    let mut answer = String::new();
    let asked = stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n");
    let end = match asked.and_then(|()| stream.read_to_string(&mut answer)) {
        Ok(_) if answer.contains(" 200 OK") => ClientEnd::Answered,
        Ok(_) => failed(Symptom::Closed),
        Err(error) if error.kind() == ErrorKind::WouldBlock => failed(Symptom::ResponseTimeout),
        Err(_) => failed(Symptom::Reset),
    };
    (port, connected, end)
}

#[test]
fn the_truth_explains_every_failure_of_a_rollout_under_load() {
    if is_left_out("the_truth_explains_every_failure_of_a_rollout_under_load") {
        return;
    }
    // Few ports and a short timer, so that ports come round while their entries live.
    let settings = LabSettings { ports: 32768..=34815, syn_sent_timeout: Some(12), ..settings() };
    let lab = Lab::build(&settings, &Stop::default()).expect("a lab can be built");
    let stop = Stop::default();
    let target = lab.service();
    let workers: Vec<_> = (0..10)
        .map(|worker| {
            let stop = stop.clone();
            lab.in_client(move || work(target, worker, &stop)).expect("a thread can be had")
        })
        .collect();
    roll(&lab);
    // Until the last entry has expired, and a little longer.
    stop.wait(Duration::from_secs(15));
    stop.request();
    let rows: Vec<ClientRow> = workers
        .into_iter()
        .flat_map(|worker| worker.join().expect("it does not panic").expect("it can enter"))
        .collect();
    let truth = lab.finish_truth().expect("every look worked");

    let looks = &truth.looks;
    let gap = looks.windows(2).map(|pair| pair[1].before.since(pair[0].before)).max();
    assert!(gap < Some(Duration::from_secs(2)), "the looks are too far apart to judge by: {gap:?}");

    let judgements = judge(&truth, &rows);
    let (mut met, mut fresh, mut failed) = (0, 0, 0);
    for (row, judgement) in rows.iter().zip(&judgements) {
        let is_failed = row.end != ClientEnd::Answered;
        failed += u32::from(is_failed);
        match &judgement.judged {
            Judged::Ok | Judged::Slowed { .. } => assert!(!is_failed, "{row:?}: {judgement:?}"),
            Judged::MetStale { .. } => met += 1,
            Judged::FreshToDeadAddress { .. } => fresh += 1,
            Judged::RefusedByDyingPod { .. } | Judged::CutByDyingPod { .. } => {}
            other => panic!("{row:?}: {other:?}"),
        }
        if matches!(judgement.judged, Judged::MetStale { .. } | Judged::FreshToDeadAddress { .. }) {
            assert_eq!(row.end, ClientEnd::Failed(Symptom::ConnectTimeout), "{judgement:?}");
        }
    }
    let total = rows.len();
    eprintln!(
        "{total} requests, {failed} failed, {met} met a stale entry, {fresh} fresh to a dead address"
    );
    assert!(met > 0 && fresh > 0, "{total} requests, {failed} failed, {met} met, {fresh} fresh");
}
