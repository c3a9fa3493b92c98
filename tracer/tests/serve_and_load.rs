//! `tracer serve` and `tracer load` as processes.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{self, Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::codec::requests::Row;

const TRACER: &str = env!("CARGO_BIN_EXE_tracer");

/// Longer than anything here takes, so that a test ends also where it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address of this call's own: no other test and no client's source port can be in its way.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    (Ipv4Addr::new(127, high | 1, low, next), 8080).into()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The arguments of a demo app that listens at once.
fn serve_args(listen: SocketAddr) -> [String; 7] {
    let listen = listen.to_string();
    ["serve", "--listen", &listen, "--app", "web", "--pod", "web-a"].map(str::to_owned)
}

/// A process that is killed at the end of the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }

    /// The exit status, once it ended.
    fn code(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("it goes on running", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

fn serve(listen: SocketAddr) -> Running {
    serve_with(listen, &[])
}

fn serve_with(listen: SocketAddr, more: &[&str]) -> Running {
    let mut server = Command::new(TRACER);
    server.args(serve_args(listen)).args(more).stderr(Stdio::piped());
    let mut server = Running(server.spawn().unwrap());
    let mut said = String::new();
    BufReader::new(server.0.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, format!("tracer: listening on {listen}\n"));
    server
}

fn load(args: &[&str]) -> Output {
    Command::new(TRACER).arg("load").args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_demo_app_ends_at_once_when_asked() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = serve(free_address());
        kill(server.pid(), signal).unwrap();
        assert_eq!(server.code(), Some(0), "{signal}");
    }
}

#[test]
fn the_demo_app_ends_on_sigterm_also_while_it_does_not_listen_yet() {
    let mut server = Command::new(TRACER);
    let server = server.args(serve_args(free_address())).args(["--start-delay", "1h"]);
    let mut server = Running(server.spawn().unwrap());
    // SIGTERM is caught (bit 14 of SigCgt, proc_pid_status(5)) as soon as the handler is there.
    let status = format!("/proc/{}/status", server.pid());
    wait_until("no handler", || catches_sigterm(&status));
    kill(server.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(server.code(), Some(0));
}

fn catches_sigterm(status: &str) -> bool {
    fs::read_to_string(status)
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << (Signal::SIGTERM as u32 - 1) != 0)
}

/// A demo app as PID 1 of a PID namespace, by the process that waits for it, and its PID outside.
fn serve_as_pid_1(listen: SocketAddr, more: &[&str]) -> Option<(Running, Pid)> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", TRACER]).args(serve_args(listen)).args(more);
    let mut unshare = Running(unshare.stderr(Stdio::piped()).spawn().unwrap());
    let child = format!("/proc/{0}/task/{0}/children", unshare.pid());
    let mut refused = false;
    wait_until("it does not listen", || {
        refused = unshare.0.try_wait().unwrap().is_some();
        refused || TcpStream::connect(listen).is_ok()
    });
    if refused {
        eprintln!("left out: cannot make a PID namespace");
        return None;
    }
    let server: i32 = fs::read_to_string(child).unwrap().trim().parse().unwrap();
    Some((unshare, Pid::from_raw(server)))
}

#[test]
fn the_demo_app_ends_on_sigterm_as_pid_1() {
    for more in [&[][..], &["--drain"]] {
        let Some((mut unshare, server)) = serve_as_pid_1(free_address(), more) else { return };
        kill(server, Signal::SIGTERM).unwrap();
        assert_eq!(unshare.code(), Some(0), "{more:?}");
    }
}

#[test]
fn without_a_handler_pid_1_lives_on_until_sigkill() {
    let listen = free_address();
    let Some((mut unshare, server)) = serve_as_pid_1(listen, &["--ignore-sigterm"]) else { return };
    kill(server, Signal::SIGTERM).unwrap();
    // A signal that is dropped leaves no trace; what is asked afterwards is answered.
    let mut client = Client::connect(listen);
    client.send("/");
    assert!(client.answer().starts_with("HTTP/1.1 200 OK\r\n"));
    kill(server, Signal::SIGKILL).unwrap();
    // unshare ends as its child did.
    assert_ne!(unshare.code(), Some(0));
    assert!(TcpStream::connect(listen).is_err());
}

#[test]
fn without_a_handler_any_other_process_is_ended_by_sigterm() {
    let mut server = serve_with(free_address(), &["--ignore-sigterm"]);
    kill(server.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(server.code(), None);
    let status = server.0.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::SIGTERM as i32));
}

#[test]
fn a_drain_answers_what_is_in_flight_and_closes_what_is_idle() {
    let listen = free_address();
    let mut server = serve_with(listen, &["--drain", "--keep-alive", "--delay=1s"]);
    let [mut busy, mut idle] = [(); 2].map(|()| Client::connect(listen));
    for client in [&mut busy, &mut idle] {
        client.send("/healthz");
        assert!(!client.answer().contains("connection: close"));
    }
    busy.send("/");
    // Served in turn: when this one is answered, the one before has been read.
    idle.send("/healthz");
    idle.answer();
    let asked = Instant::now();
    kill(server.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(idle.rest(), "", "closed, with nothing said");
    assert!(asked.elapsed() < Duration::from_millis(900), "long before the other was answered");
    assert!(TcpStream::connect(listen).is_err(), "nobody listens");
    assert_eq!(server.0.try_wait().unwrap(), None);
    let answer = busy.rest();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("\"pod\":\"web-a\"}\n"), "{answer}");
    assert_eq!(server.code(), Some(0));
}

#[test]
fn without_a_drain_what_is_in_flight_breaks_off() {
    let listen = free_address();
    let mut server = serve_with(listen, &["--keep-alive", "--delay=1h"]);
    let mut busy = Client::connect(listen);
    busy.send("/healthz");
    busy.answer();
    busy.send("/");
    kill(server.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(server.code(), Some(0));
    assert_eq!(busy.rest(), "");
}

/// An HTTP client that one can look into.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(listen: SocketAddr) -> Client {
        let stream = TcpStream::connect(listen).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    fn send(&mut self, path: &str) {
        write!(self.0.get_mut(), "GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    }

    /// The next answer; its body is one line.
    fn answer(&mut self) -> String {
        let mut answer = String::new();
        while !answer.ends_with("}\n") {
            assert_ne!(self.0.read_line(&mut answer).unwrap(), 0, "{answer}");
        }
        answer
    }

    /// What comes until the connection ends, in whichever way.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        String::from_utf8(rest).unwrap()
    }
}

#[test]
fn contradictions_and_impossible_values_are_refused() {
    for (args, word) in [
        (&["serve", "--drain", "--ignore-sigterm"][..], "cannot be used with"),
        (&["serve", "--drain", "dns"], "cannot be used with"),
        (&["serve", "dns", "--lose=1.5"], "a number from 0 to 1"),
        (&["serve", "dns", "--name=web"], "NAME=ADDRESS"),
        (&["serve", "dns", "--fail=never"], "servfail, nxdomain, refused"),
        (&["load", "web"], "NAME:PORT"),
        (&["load", "127.0.0.1:1", "--mode=both"], "fresh, keep-alive"),
        (&["load", "127.0.0.1:1", "--timeout=0"], "more than 0"),
    ] {
        let output = Command::new(TRACER).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn a_name_is_resolved_by_the_lab_s_own_dns_server() {
    let listen = free_address();
    let _server = serve_with(listen, &["--keep-alive"]);
    let dns = SocketAddr::new(listen.ip(), 5353).to_string();
    let name = format!("web.shop={}", listen.ip());
    let mut resolver = Command::new(TRACER);
    resolver.args(["serve", "dns", "--listen", &dns, "--name", &name, "--delay=20ms"]);
    let mut resolver = Running(resolver.spawn().unwrap());
    let status = format!("/proc/{}/status", resolver.pid());
    wait_until("no handler", || catches_sigterm(&status));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.csv");
    let output = load(&[
        &format!("web.shop:{}", listen.port()),
        "--mode=keep-alive",
        "--workers=2",
        "--duration=300ms",
        "--resolver",
        &dns,
        "--log",
        log.to_str().unwrap(),
    ]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    let mut rows = csv::Reader::from_path(&log).unwrap();
    let rows: Vec<Row> = rows.deserialize().collect::<Result<_, _>>().unwrap();
    let first = rows.iter().filter(|row| row.nth == Some(0)).collect::<Vec<_>>();
    assert_eq!(first.len(), 2, "a connection for each worker");
    assert!(rows.len() > 2);
    for row in &rows {
        assert_eq!((row.outcome.as_str(), row.target), ("answered", Some(listen)));
        assert_eq!(row.resolve.is_some(), row.nth == Some(0));
        assert!(row.resolve.is_none_or(|resolve| resolve >= 0.02));
        assert!(row.received > 0);
    }
    kill(resolver.pid(), Signal::SIGTERM).unwrap();
    assert_eq!(resolver.code(), Some(0));
    // Nobody answers on that address any more.
    let output = load(&[
        &format!("web.shop:{}", listen.port()),
        "--workers=1",
        "--duration=20ms",
        "--format=json",
        "--resolver",
        &dns,
    ]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["symptoms"]["local"], summary["requests"]);
    assert_eq!(summary["unresolved"]["unreachable"], summary["requests"]);
}

#[test]
fn the_demo_app_dies_with_its_parent() {
    let listen = free_address();
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" --die-with-parent & echo $!; wait", "sh", TRACER]);
    let shell = shell.args(serve_args(listen)).stdout(Stdio::piped()).spawn().unwrap();
    let mut shell = Running(shell);
    let mut server = String::new();
    BufReader::new(shell.0.stdout.take().unwrap()).read_line(&mut server).unwrap();
    let server = Pid::from_raw(server.trim().parse().unwrap());
    wait_until("it does not listen", || TcpStream::connect(listen).is_ok());
    shell.0.kill().unwrap();
    // Gone, or not yet waited for by whoever inherited it.
    wait_until("it outlives its parent", || match kill(server, None) {
        Err(error) => error == Errno::ESRCH,
        Ok(()) => fs::read_to_string(format!("/proc/{server}/stat")).map_or(true, |stat| {
            stat.rsplit_once(") ").is_some_and(|(_, end)| end.starts_with('Z'))
        }),
    });
}

#[test]
fn a_taken_address_is_one_line() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = taken.local_addr().unwrap();
    let output = Command::new(TRACER).args(serve_args(listen)).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        format!("tracer: cannot listen on {listen}: Address already in use (os error 98)\n")
    );
}

#[test]
fn the_log_has_a_row_for_each_request_of_the_summary_and_is_private() {
    let listen = free_address();
    let _server = serve(listen);
    let folder = tempfile::tempdir().unwrap();
    for (name, rows_before) in [("log.csv", 1), ("log.jsonl", 0)] {
        let log = folder.path().join(name);
        let output = load(&[
            &listen.to_string(),
            "--app=web",
            "--duration=300ms",
            "--format=json",
            "--log",
            log.to_str().unwrap(),
        ]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let requests = summary["requests"].as_u64().unwrap();
        assert!(requests >= 10, "each of 10 workers asked at least once");
        assert_eq!(summary["answered"], requests);
        assert_eq!(summary["pods"]["web-a"], requests);
        assert_eq!(summary["closed_by"]["server"], requests);
        let rows = fs::read_to_string(&log).unwrap().lines().count() as u64;
        assert_eq!(rows, requests + rows_before);
        assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn where_nobody_listens_it_is_asked_again_but_not_as_fast_as_can_be() {
    let target = free_address().to_string();
    let output = load(&[&target, "--workers=1", "--duration=500ms", "--format=json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["symptoms"]["refused"], summary["requests"]);
    // 19 without a pause, then one in 10 ms at most.
    let requests = summary["requests"].as_u64().unwrap();
    assert!((20..=19 + 50 + 1).contains(&requests), "{requests}");
}

#[test]
fn a_log_that_is_there_is_replaced_only_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.csv");
    fs::write(&log, "mine").unwrap();
    let path = log.to_str().unwrap();
    let target = free_address().to_string();
    let output = load(&[&target, "--duration=20ms", "--log", path]);
    assert_eq!(output.status.code(), Some(2));
    let refused = format!(
        "tracer: {path} exists; remove it, choose another name, or replace it with --force\n"
    );
    assert_eq!(stderr(&output), refused);
    assert_eq!(fs::read_to_string(&log).unwrap(), "mine");
    let output = load(&[&target, "--duration=20ms", "--log", path, "--force"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    assert!(fs::read_to_string(&log).unwrap().starts_with("id,worker,"));
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run_with_one_line() {
    let listen = free_address();
    let _server = serve(listen);
    let target = listen.to_string();
    let output = load(&[&target, "--duration=1h", "--log=/dev/full", "--log-format=csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "tracer: writing the log /dev/full: No space left on device (os error 28)\n"
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn a_log_of_unknown_format_is_refused_before_anything_is_asked() {
    let output = load(&["127.0.0.1:1", "--log=requests.txt"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        stderr(&output),
        "tracer: requests.txt ends neither in .csv nor in .jsonl; give --log-format\n"
    );
    assert!(!Path::new("requests.txt").exists());
}

#[test]
fn ctrl_c_ends_the_load_with_its_summary() {
    let listen = free_address();
    let _server = serve(listen);
    let mut client = Command::new(TRACER);
    client.args(["load", &listen.to_string(), "--log=/dev/stderr", "--log-format=csv"]);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = Running(client);
    // Rows come in pieces; the first one says that requests are being made.
    let mut rows = BufReader::new(client.0.stderr.take().unwrap()).lines();
    assert!(rows.next().unwrap().unwrap().starts_with("id,worker,"));
    kill(client.pid(), Signal::SIGINT).unwrap();
    assert!(rows.all(|row| row.unwrap().contains(",answered,")));
    assert_eq!(client.code(), Some(0));
    let summary = std::io::read_to_string(client.0.stdout.take().unwrap()).unwrap();
    assert!(summary.contains(" answered, 0 failed\n"), "{summary}");
}
