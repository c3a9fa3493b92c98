//! Names: the client's resolver against the DNS server of the lab, over sockets.

use std::net::{IpAddr, UdpSocket};

use super::*;
use crate::loadgen::dns::{self, DnsFailure, DnsSettings};
use crate::loadgen::{Mode, Resolve, Target};
use crate::model::{NameError, Resolution};

fn dns_settings() -> DnsSettings {
    DnsSettings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        names: vec![("web.shop".to_owned(), Ipv4Addr::LOCALHOST.into())],
        delay: Duration::ZERO,
        lose: 0.0,
        seed: 1,
        fail: None,
    }
}

/// A DNS server on a thread of its own for as long as the tests run.
fn dns_server(settings: DnsSettings) -> SocketAddr {
    let socket = UdpSocket::bind(settings.listen).unwrap();
    socket.set_nonblocking(true).unwrap();
    let listen = socket.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = tokio::net::UdpSocket::from_std(socket).unwrap();
            dns::serve(socket, &settings, &mut |_| Ok(())).await
        })
    });
    listen
}

fn named(name: &str, port: u16, resolver: SocketAddr) -> ClientSettings {
    ClientSettings {
        target: format!("{name}:{port}").parse().unwrap(),
        resolver: Some(resolver),
        ..settings((Ipv4Addr::LOCALHOST, port).into())
    }
}

fn all(count: usize, settings: &ClientSettings) -> Vec<RequestEnded> {
    let stop = Stop::default();
    let mut ended = Vec::new();
    client::run(settings, &stop, &mut |event| {
        if let EventKind::RequestEnded(end) = event.kind {
            ended.push(end);
        }
        if ended.len() >= count {
            stop.request();
        }
    })
    .unwrap();
    // What had begun when the last one ended is of no interest.
    ended.truncate(count);
    ended
}

#[test]
fn a_name_is_asked_for_with_each_connection_or_once() {
    let target = demo_app(Duration::ZERO);
    let resolver = dns_server(dns_settings());
    let settings = named("Web.shop", target.port(), resolver);
    for (resolve, mode, asked) in [
        (Resolve::Each, Mode::Fresh, [true, true, true]),
        (Resolve::Once, Mode::Fresh, [true, false, false]),
    ] {
        let ended = all(3, &ClientSettings { resolve, mode, ..settings.clone() });
        for (end, asked) in ended.iter().zip(asked) {
            assert_eq!(end.outcome, Outcome::Answered { status: 200 });
            assert_eq!(end.target, Some(target));
            assert_eq!(end.resolution.is_some(), asked, "{resolve:?}");
            assert_eq!(end.resolution.and_then(|resolution| resolution.failed), None);
        }
    }
}

#[test]
fn on_a_kept_connection_nobody_asks_for_the_name() {
    let target = demo_app_with(ServerSettings { keep_alive: true, ..app_settings(Duration::ZERO) });
    let settings = named("web.shop", target.port(), dns_server(dns_settings()));
    let ended = all(3, &ClientSettings { mode: Mode::KeepAlive, ..settings });
    let asked: Vec<bool> = ended.iter().map(|end| end.resolution.is_some()).collect();
    assert_eq!(asked, [true, false, false]);
}

#[test]
fn a_slow_name_is_part_of_the_request_s_time_and_told_apart() {
    let delay = Duration::from_millis(150);
    let resolver = dns_server(DnsSettings { delay, ..dns_settings() });
    let (ended, _) = ask(&named("web.shop", demo_app(Duration::ZERO).port(), resolver));
    assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
    let took = ended.resolution.unwrap().took;
    let connected = ended.connect.unwrap();
    assert!(delay <= took && took <= connected && connected <= ended.total);
}

/// How a request fails whose name this server is asked for.
fn name_failure(name: &str, resolver: SocketAddr) -> (Outcome, Option<Resolution>) {
    let settings = ClientSettings { timeout: IMPATIENT, ..named(name, 80, resolver) };
    let (ended, _) = ask(&settings);
    assert_eq!((ended.source, ended.target, ended.connect), (None, None, None));
    (ended.outcome, ended.resolution)
}

#[test]
fn each_way_in_which_a_name_does_not_resolve_has_its_word() {
    let server = |fail| dns_server(DnsSettings { fail, ..dns_settings() });
    // Bound, and never read.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // An address of loopback where nobody listens: ICMP says so.
    let nobody = (Ipv4Addr::new(127, 83, 7, 2), 53).into();
    for (name, resolver, expected) in [
        ("web.shop", server(Some(DnsFailure::Servfail)), NameError::ServerFailed),
        ("web.shop", server(Some(DnsFailure::Refused)), NameError::ServerFailed),
        ("web.shop", server(Some(DnsFailure::Nxdomain)), NameError::NoSuchName),
        ("shop.web", server(None), NameError::NoSuchName),
        ("web.shop", silent.local_addr().unwrap(), NameError::Unanswered),
        ("web.shop", nobody, NameError::Unreachable),
    ] {
        let (outcome, resolution) = name_failure(name, resolver);
        assert_eq!(outcome, failed(Symptom::Local, None, None));
        let resolution = resolution.unwrap();
        assert_eq!(resolution.failed, Some(expected));
        assert_eq!(resolution.took >= IMPATIENT, expected == NameError::Unanswered);
    }
}

#[test]
fn names_of_either_family_resolve_and_ipv4_goes_first() {
    let names = [("six", "::1"), ("both", "::1"), ("both", "127.0.0.1")]
        .map(|(name, address)| (name.to_owned(), address.parse::<IpAddr>().unwrap()));
    let resolver = dns_server(DnsSettings { names: names.into(), ..dns_settings() });
    for (name, expected) in [("six", "[::1]:9"), ("both", "127.0.0.1:9")] {
        // The discard port: refused, or unreachable without IPv6, but asked there.
        let (ended, _) = ask(&named(name, 9, resolver));
        assert_eq!(ended.target, Some(expected.parse().unwrap()));
    }
}

#[test]
fn what_the_server_loses_is_a_matter_of_its_seed() {
    let lost = |seed| {
        let resolver = dns_server(DnsSettings { lose: 0.3, seed, ..dns_settings() });
        let target = demo_app(Duration::ZERO);
        let timeout = Duration::from_millis(50);
        all(12, &ClientSettings { timeout, ..named("web.shop", target.port(), resolver) })
            .iter()
            .map(|end| end.resolution.unwrap().failed)
            .collect::<Vec<_>>()
    };
    let first = lost(7);
    assert!(first.contains(&None) && first.contains(&Some(NameError::Unanswered)), "{first:?}");
    assert_eq!(first, lost(7));
}

#[test]
fn the_host_header_has_the_name_without_its_last_dot() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 1024];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(ANSWER.as_bytes()).unwrap();
        String::from_utf8(request[..length].to_vec()).unwrap()
    });
    let (ended, _) = ask(&named("web.shop.", port, dns_server(dns_settings())));
    assert_eq!(ended.outcome, Outcome::Answered { status: 200 });
    let request = server.join().unwrap();
    assert!(request.contains(&format!("host: web.shop:{port}\r\n")), "{request}");
    assert_eq!(
        Target::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 80))).to_string(),
        "127.0.0.1:80"
    );
}
