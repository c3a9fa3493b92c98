//! The lab's own truth explains what a client sees.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, Socket, Type};
use tracer::lab::truth::{ClientEnd, ClientRow, Judged, Truth, judge};
use tracer::lab::{Lab, LabSettings};
use tracer::model::{MonoNs, Symptom};
use tracer::sys::clock;
use tracer::sys::stop::Stop;

use super::{is_left_out, roll, settings};

/// Sends one request after the other, each on a connection of its own, until told to stop.
fn work(target: SocketAddr, worker: u64, stop: &Stop) -> Vec<ClientRow> {
    let mut rows = Vec::new();
    while !stop.is_requested() {
        let id = worker * 1_000_000 + rows.len() as u64;
        let start = clock::now();
        let (port, connected, end) = request(target, start);
        let total = clock::now().since(start);
        rows.push(ClientRow {
            id,
            start,
            is_reused: false,
            port,
            resolution: None,
            connected,
            total,
            end,
        });
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

/// A rollout under load of ten workers, and some time after it.
fn run(settings: &LabSettings, after: Duration) -> (Truth, Vec<ClientRow>) {
    let lab = Lab::build(settings, &Stop::default()).expect("a lab can be built");
    let stop = Stop::default();
    let target = lab.service();
    let workers: Vec<_> = (0..10)
        .map(|worker| {
            let stop = stop.clone();
            lab.in_client(move || work(target, worker, &stop)).expect("a thread can be had")
        })
        .collect();
    std::thread::scope(|scope| scope.spawn(|| roll(&lab)).join().expect("it does not panic"));
    stop.wait(after);
    stop.request();
    let rows = workers
        .into_iter()
        .flat_map(|worker| worker.join().expect("it does not panic").expect("it can enter"))
        .collect();
    (lab.finish_truth().expect("every look worked"), rows)
}

#[test]
fn the_truth_explains_every_failure_of_a_rollout_under_load() {
    if is_left_out("the_truth_explains_every_failure_of_a_rollout_under_load") {
        return;
    }
    // Few ports and a short timer, so that ports come round while their entries live.
    let few = LabSettings { ports: 32768..=34815, syn_sent_timeout: Some(12), ..settings() };
    // Until the last entry has expired, and a little longer.
    let (truth, rows) = run(&few, Duration::from_secs(15));

    let looks = &truth.looks;
    let gap = looks.windows(2).map(|pair| pair[1].before.since(pair[0].before)).max();
    assert!(gap < Some(Duration::from_secs(2)), "the looks are too far apart to judge by: {gap:?}");

    let (mut met, mut fresh, mut failed) = (0, 0, 0);
    for (row, judgement) in rows.iter().zip(judge(&truth, &rows)) {
        let is_failed = row.end != ClientEnd::Answered;
        failed += u32::from(is_failed);
        match judgement.judged {
            Judged::Ok | Judged::Slowed { .. } | Judged::SentAnew { .. } => {
                assert!(!is_failed, "{row:?}: {judgement:?}");
            }
            Judged::FreshToGoingAddress { .. } => assert!(is_failed, "{row:?}: {judgement:?}"),
            Judged::MetStale { .. } => met += 1,
            Judged::FreshToDeadAddress { .. } => fresh += 1,
            Judged::RefusedByPod { .. } | Judged::CutByDyingPod { .. } => assert!(is_failed),
            other => panic!("{row:?}: {other:?}"),
        }
        if matches!(judgement.judged, Judged::MetStale { .. } | Judged::FreshToDeadAddress { .. }) {
            assert_eq!(row.end, ClientEnd::Failed(Symptom::ConnectTimeout), "{judgement:?}");
        }
    }
    let counts = format!(
        "{} requests, {failed} failed, {met} met a stale entry, {fresh} fresh to a dead address",
        rows.len()
    );
    eprintln!("{counts}");
    assert!(met > 0 && fresh > 0, "{counts}");
}

#[test]
fn with_prestop_no_request_of_a_rollout_fails() {
    if is_left_out("with_prestop_no_request_of_a_rollout_fails") {
        return;
    }
    let setup = "readiness-prestop".parse().expect("there is such a setup");
    let (truth, rows) = run(&LabSettings { setup, ..settings() }, Duration::from_secs(1));
    assert!(rows.len() > 500, "only {} requests", rows.len());
    for (row, judgement) in rows.iter().zip(judge(&truth, &rows)) {
        assert_eq!((row.end, judgement.judged), (ClientEnd::Answered, Judged::Ok), "{row:?}");
    }
}
