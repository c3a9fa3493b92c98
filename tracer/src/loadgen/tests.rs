//! The client against servers that misbehave in every way, and against the demo app. What is said about who
//! closes first is asked of the kernel, not of the client.

use std::fs;
use std::future::pending;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, SockRef, Socket, Type};

use super::client::{self, ClientSettings, Closes};
use super::server::{self, OnSigterm, ServerSettings};
use crate::model::{Event, EventKind, Outcome, RequestEnded, Symptom};
use crate::sys::stop::Stop;

mod keep_alive;
mod naming;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\nx-app: web\r\nx-pod: web-a\r\n\
                      content-length: 5\r\n\r\nhello";

/// More than anything here takes.
const PATIENT: Duration = Duration::from_secs(20);

/// For what is to time out.
const IMPATIENT: Duration = Duration::from_millis(300);

fn settings(target: SocketAddr) -> ClientSettings {
    ClientSettings {
        workers: 1,
        timeout: PATIENT,
        app: Some("web".to_owned()),
        ..ClientSettings::new(target)
    }
}

/// One request, how it ended, and who closed.
fn ask(settings: &ClientSettings) -> (RequestEnded, Closes) {
    let stop = Stop::default();
    let mut ended = Vec::new();
    let closes = client::run(settings, &stop, &mut |event| match event.kind {
        EventKind::RequestEnded(end) => ended.push(end),
        _ => stop.request(),
    })
    .unwrap();
    assert_eq!(ended.len(), 1, "the worker was asked to stop when its first request began");
    (ended.remove(0), closes)
}

/// One request to a server that accepts one connection, reads the request and then does `misbehave`.
fn ask_server(
    timeout: Duration,
    misbehave: impl FnOnce(TcpStream) + Send + 'static,
) -> (RequestEnded, Closes) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        misbehave(stream);
    });
    let answer = ask(&ClientSettings { timeout, ..settings(target) });
    server.join().unwrap();
    answer
}

fn read_request(stream: &mut TcpStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
}

fn failed(symptom: Symptom, errno: Option<Errno>, status: Option<u16>) -> Outcome {
    Outcome::Failed { symptom, errno: errno.map(|errno| errno as i32), status }
}

/// Closes with a RST.
fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Holds the connection until the client closes it.
fn hold(mut stream: TcpStream) {
    let _ = stream.read(&mut [0]);
}

#[test]
fn an_answer_names_its_pod_and_the_server_closes_first() {
    let (ended, closes) = ask_server(PATIENT, |mut stream| {
        stream.write_all(ANSWER.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        hold(stream);
    });
    assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
    assert_eq!(ended.pod.as_deref(), Some("web-a"));
    assert!(ended.source.is_some_and(|source| source.port() != 0));
    assert!(ended.connect.is_some_and(|connect| connect <= ended.total));
    assert_eq!(closes, Closes { server: 1, client: 0 });
}

#[test]
fn a_server_that_never_closes_is_closed_by_the_client_in_time_and_counted() {
    let (ended, closes) = ask_server(IMPATIENT, |mut stream| {
        stream.write_all(ANSWER.as_bytes()).unwrap();
        hold(stream);
    });
    assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
    assert!(ended.total < IMPATIENT, "the answer was there before the close");
    assert_eq!(closes, Closes { server: 0, client: 1 });
}

#[test]
fn a_refused_connect_knows_its_source_port() {
    // The discard service of a loopback address that nobody uses.
    let (ended, _) = ask(&settings((Ipv4Addr::new(127, 83, 7, 1), 9).into()));
    assert_eq!(ended.outcome, failed(Symptom::Refused, Some(Errno::ECONNREFUSED), None));
    assert!(ended.source.is_some_and(|source| source.port() != 0));
    assert_eq!(ended.connect, None);
}

#[test]
fn a_connect_that_nobody_answers_times_out_and_knows_its_source_port() {
    // A listener whose queue is full drops SYNs (tcp_conn_request(), net/ipv4/tcp_input.c).
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let target = listener.local_addr().unwrap().as_socket().unwrap();
    let mut queue = Vec::new();
    while let Ok(waiting) = TcpStream::connect_timeout(&target, Duration::from_millis(100)) {
        queue.push(waiting);
    }
    let (ended, _) = ask(&ClientSettings { timeout: IMPATIENT, ..settings(target) });
    assert_eq!(ended.outcome, failed(Symptom::ConnectTimeout, None, None));
    assert!(ended.source.is_some_and(|source| source.port() != 0));
    assert!(ended.total >= IMPATIENT);
}

#[test]
fn a_connection_closed_before_the_answer_is_closed() {
    let (ended, _) = ask_server(PATIENT, drop);
    assert_eq!(ended.outcome, failed(Symptom::Closed, None, None));
}

#[test]
fn a_connection_reset_before_the_answer_is_reset() {
    let (ended, _) = ask_server(PATIENT, reset);
    assert_eq!(ended.outcome, failed(Symptom::Reset, Some(Errno::ECONNRESET), None));
}

#[test]
fn a_cut_body_is_closed_and_keeps_its_status() {
    let (ended, _) = ask_server(PATIENT, |mut stream| {
        stream.write_all(&ANSWER.as_bytes()[..ANSWER.len() - 2]).unwrap();
    });
    assert_eq!(ended.outcome, failed(Symptom::Closed, None, Some(200)));
}

#[test]
fn a_reset_within_the_body_is_reset_and_keeps_its_status() {
    // Where the kernel's table of connections is short.
    in_own_network(|| {
        let (ended, _) = ask_server(PATIENT, |mut stream| {
            stream.write_all(&ANSWER.as_bytes()[..ANSWER.len() - 2]).unwrap();
            // A RST discards what the client has not read. It has read all when nothing waits in either queue.
            let (server, client) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let is_read = || {
                let connections = connections();
                let of = |local, remote| {
                    connections
                        .iter()
                        .find(|connection| connection.local == local && connection.remote == remote)
                        .expect("both ends are open")
                };
                of(server, client).send_queue == 0 && of(client, server).receive_queue == 0
            };
            while !is_read() {
                thread::yield_now();
            }
            reset(stream);
        });
        assert_eq!(ended.outcome, failed(Symptom::Reset, Some(Errno::ECONNRESET), Some(200)));
    });
}

#[test]
fn no_answer_in_time_is_a_response_timeout() {
    let (ended, _) = ask_server(IMPATIENT, hold);
    assert_eq!(ended.outcome, failed(Symptom::ResponseTimeout, None, None));
    assert!(ended.connect.is_some());
    assert!(ended.total >= IMPATIENT);
}

#[test]
fn half_an_answer_in_time_is_a_response_timeout_with_its_status() {
    let (ended, _) = ask_server(IMPATIENT, |mut stream| {
        stream.write_all(&ANSWER.as_bytes()[..ANSWER.len() - 2]).unwrap();
        hold(stream);
    });
    assert_eq!(ended.outcome, failed(Symptom::ResponseTimeout, None, Some(200)));
}

#[test]
fn an_answer_of_another_app_or_of_none_or_of_another_protocol_is_wrong() {
    for (answer, status) in [
        (ANSWER.replace("x-app: web", "x-app: shop"), Some(200)),
        (ANSWER.replace("x-app: web\r\n", ""), Some(200)),
        (ANSWER.replace("200 OK", "503 Service Unavailable"), Some(503)),
        ("SSH-2.0-OpenSSH_9.6\r\n".to_owned(), None),
    ] {
        let (ended, _) =
            ask_server(PATIENT, move |mut stream| stream.write_all(answer.as_bytes()).unwrap());
        assert_eq!(ended.outcome, failed(Symptom::WrongAnswer, None, status));
    }
}

#[test]
fn an_answer_below_500_is_an_answer() {
    let (ended, _) = ask_server(PATIENT, |mut stream| {
        stream.write_all(ANSWER.replace("200 OK", "404 Not Found").as_bytes()).unwrap();
    });
    assert_eq!(ended.outcome, Outcome::Answered { status: 404 });
}

#[test]
fn an_app_that_no_header_can_name_is_refused() {
    let target = (Ipv4Addr::LOCALHOST, 1).into();
    let settings = ClientSettings { app: Some("we\nb".to_owned()), ..settings(target) };
    let error = client::run(&settings, &Stop::default(), &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "no answer can name the app \"we\\nb\": use visible ASCII");
}

#[test]
fn every_request_starts_once_and_ends_once_and_workers_ask_one_at_a_time() {
    let target = demo_app(Duration::ZERO);
    let stop = Stop::default();
    let settings = ClientSettings { workers: 4, ..settings(target) };
    let mut events: Vec<Event> = Vec::new();
    client::run(&settings, &stop, &mut |event| {
        events.push(event);
        if events.len() == 400 {
            stop.request();
        }
    })
    .unwrap();
    let mut busy = [None; 4];
    for event in &events {
        match &event.kind {
            EventKind::RequestStarted(started) => {
                let worker = &mut busy[started.worker as usize];
                assert_eq!(worker.replace((started.id, event.time)), None);
            }
            EventKind::RequestEnded(ended) => {
                let worker = busy
                    .iter_mut()
                    .find(|worker| worker.is_some_and(|(id, _)| id == ended.id))
                    .expect("it had started");
                let (_, started) = worker.take().expect("just found");
                assert_eq!(event.time.since(started), ended.total);
                assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
            }
            other => panic!("the client tells nothing of {other:?}"),
        }
    }
    assert_eq!(busy, [None; 4]);
    assert!(events.len() >= 400);
}

#[test]
fn times_beyond_the_clock_mean_no_limit() {
    let settings = ClientSettings {
        timeout: Duration::MAX,
        duration: Some(Duration::MAX),
        ..settings(demo_app(Duration::ZERO))
    };
    let (ended, closes) = ask(&settings);
    assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
    assert_eq!(closes, Closes { server: 1, client: 0 });
}

#[test]
fn nothing_starts_after_the_duration() {
    let target = demo_app(Duration::ZERO);
    let settings = ClientSettings { duration: Some(Duration::ZERO), ..settings(target) };
    let mut events = 0;
    client::run(&settings, &Stop::default(), &mut |_| events += 1).unwrap();
    assert_eq!(events, 0);
}

#[test]
fn healthz_answers_at_once_however_slow_the_app_is() {
    let target = demo_app(Duration::from_secs(3600));
    let mut stream = TcpStream::connect(target).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    // To the end: the server closes although the client did not ask for it.
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nx-app: web\r\nx-pod: web-a\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n{\"app\":\"web\",\"pod\":\"web-a\"}\n"), "{answer}");
}

#[test]
fn after_a_run_only_the_server_has_connections_in_time_wait() {
    in_own_network(|| {
        let target = demo_app(Duration::ZERO);
        let stop = Stop::default();
        let mut ended = 0;
        let settings = ClientSettings { workers: 3, ..settings(target) };
        let closes = client::run(&settings, &stop, &mut |event| {
            if let EventKind::RequestEnded(_) = event.kind {
                ended += 1;
            }
            if ended == 50 {
                stop.request();
            }
        })
        .unwrap();
        assert_eq!(closes, Closes { server: ended, client: 0 });
        let in_time_wait: Vec<Connection> =
            connections().into_iter().filter(|connection| connection.state == TIME_WAIT).collect();
        assert_eq!(in_time_wait.len() as u64, ended);
        assert!(in_time_wait.iter().all(|connection| connection.local == target));
    });
}

#[test]
fn without_a_route_it_is_unreachable() {
    in_own_network(|| {
        let target = (Ipv4Addr::new(203, 0, 113, 1), 80).into();
        let (ended, _) = ask(&settings(target));
        assert_eq!(ended.outcome, failed(Symptom::Unreachable, Some(Errno::ENETUNREACH), None));
        assert_eq!(ended.source, None);
    });
}

#[test]
fn a_neighbour_that_is_not_there_is_unreachable_and_the_source_port_is_known() {
    in_own_network(|| {
        ip("link add near type veth peer name far");
        ip("link set near up");
        ip("link set far up");
        ip("addr add 10.9.0.1/24 dev near");
        // One question for its hardware address, 10 ms of patience.
        for (limit, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "10")] {
            fs::write(format!("/proc/sys/net/ipv4/neigh/near/{limit}"), value).unwrap();
        }
        let target = (Ipv4Addr::new(10, 9, 0, 2), 80).into();
        let (ended, _) = ask(&settings(target));
        assert_eq!(ended.outcome, failed(Symptom::Unreachable, Some(Errno::EHOSTUNREACH), None));
        assert_eq!(ended.source.map(|source| source.ip()), Some(Ipv4Addr::new(10, 9, 0, 1).into()));
        assert!(ended.source.is_some_and(|source| source.port() != 0));
    });
}

#[test]
fn silence_of_a_neighbour_is_a_connect_timeout_and_the_source_port_is_known() {
    in_own_network(|| {
        ip("link add near type veth peer name far");
        ip("link set near up");
        ip("link set far up");
        ip("addr add fd09::1/64 dev near nodad");
        ip("neigh add fd09::2 lladdr 02:00:00:00:00:02 dev near");
        let target = "[fd09::2]:80".parse().unwrap();
        let (ended, _) = ask(&ClientSettings { timeout: IMPATIENT, ..settings(target) });
        assert_eq!(ended.outcome, failed(Symptom::ConnectTimeout, None, None));
        assert_eq!(ended.source.map(|source| source.ip().to_string()).as_deref(), Some("fd09::1"));
        assert!(ended.source.is_some_and(|source| source.port() != 0));
    });
}

#[test]
fn without_a_free_port_it_is_local_and_no_tight_loop() {
    in_own_network(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001").unwrap();
        let _taken = [TcpStream::connect(target).unwrap(), TcpStream::connect(target).unwrap()];
        let settings =
            ClientSettings { duration: Some(Duration::from_millis(200)), ..settings(target) };
        let mut ended = Vec::new();
        client::run(&settings, &Stop::default(), &mut |event| {
            if let EventKind::RequestEnded(end) = event.kind {
                ended.push(end);
            }
        })
        .unwrap();
        // One each 10 ms, or fewer.
        assert!((1..=21).contains(&ended.len()), "{} requests", ended.len());
        for ended in ended {
            assert_eq!(ended.outcome, failed(Symptom::Local, Some(Errno::EADDRNOTAVAIL), None));
            assert_eq!(ended.source, None);
        }
    });
}

/// The demo app, on a thread of its own for as long as the tests run.
fn demo_app(delay: Duration) -> SocketAddr {
    demo_app_with(app_settings(delay))
}

fn app_settings(delay: Duration) -> ServerSettings {
    ServerSettings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        app: "web".to_owned(),
        pod: "web-a".to_owned(),
        delay,
        start_delay: Duration::ZERO,
        keep_alive: false,
        two_writes: false,
        nodelay: false,
        on_sigterm: OnSigterm::Exit,
    }
}

fn demo_app_with(settings: ServerSettings) -> SocketAddr {
    let listener = TcpListener::bind(settings.listen).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listen = listener.local_addr().unwrap();
    let app = server::App::new(&settings).unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            server::serve(listener, app, pending()).await
        })
    });
    listen
}

/// Runs a test in a network namespace with nothing but a loopback device, which ends with the test.
fn in_own_network(test: impl FnOnce() + Send + 'static) {
    let test = thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("left out: cannot make a network namespace: {error}");
            return;
        }
        ip("link set lo up");
        test();
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs iproute2 in the calling thread's network namespace, in which its children are as well.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    assert!(status.is_ok_and(|status| status.success()), "ip {arguments} (needs iproute2)");
}

/// TCP_TIME_WAIT (include/net/tcp_states.h), as /proc/net/tcp has it.
const TIME_WAIT: u8 = 6;

/// A line of /proc/net/tcp.
struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    /// Bytes that the other end has not acknowledged.
    send_queue: u32,
    /// Bytes that this end has not read.
    receive_queue: u32,
}

/// The IPv4 connections of the calling thread's network namespace
/// (<https://docs.kernel.org/networking/proc_net_tcp.html>).
fn connections() -> Vec<Connection> {
    let hex = |text: &str| u32::from_str_radix(text, 16).unwrap();
    let address = |text: &str| {
        let (address, port) = text.split_once(':').unwrap();
        (Ipv4Addr::from(hex(address).to_ne_bytes()), hex(port) as u16).into()
    };
    fs::read_to_string("/proc/thread-self/net/tcp")
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (send_queue, receive_queue) = fields[4].split_once(':').unwrap();
            Connection {
                local: address(fields[1]),
                remote: address(fields[2]),
                state: hex(fields[3]) as u8,
                send_queue: hex(send_queue),
                receive_queue: hex(receive_queue),
            }
        })
        .collect()
}
