//! A lab stands, alone or beside another, and leaves the machine as it was.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use expect_test::expect;
use tracer::lab::{Lab, LabError, LabSettings};
use tracer::model::NetnsRole;
use tracer::sys::netns;
use tracer::sys::owner::OwnerError;
use tracer::sys::process::is_running;
use tracer::sys::stop::Stop;

use super::{ask, is_left_out, names_of, processes_of, settings};

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
    // The first number after the names' line is that of all ICMP messages that came in.
    let counters = lab.client_netns().run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let counters = counters.expect("it can enter").expect("there are counters");
    let icmp = counters.lines().filter_map(|line| line.strip_prefix("Icmp: ")).nth(1);
    assert_eq!(icmp.and_then(|line| line.split(' ').next()), Some("0"), "{counters}");
}
