//! One connection for many requests, and what the client makes of its end.

use super::*;
use crate::loadgen::Mode;
use crate::model::Reuse;

const KEPT: &str =
    "HTTP/1.1 200 OK\r\nx-app: web\r\nx-pod: web-a\r\ncontent-length: 5\r\n\r\nhello";

/// Requests of one worker, until this many have ended, to a server that does `serve` with each connection.
fn ask_many(
    count: usize,
    timeout: Duration,
    serve: impl Fn(usize, TcpStream) + Send + 'static,
) -> (Vec<RequestEnded>, Closes) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    thread::spawn(move || {
        for number in 0.. {
            serve(number, listener.accept().unwrap().0);
        }
    });
    run_many(count, &ClientSettings { timeout, ..keep_alive(target) })
}

fn keep_alive(target: SocketAddr) -> ClientSettings {
    ClientSettings { mode: Mode::KeepAlive, ..settings(target) }
}

#[test]
fn a_client_that_closes_first_does_so_with_each_answer() {
    let open = |_, mut stream: TcpStream| {
        read_request(&mut stream);
        stream.write_all(KEPT.as_bytes()).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the client closes, and soon");
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    thread::spawn(move || {
        for number in 0.. {
            open(number, listener.accept().unwrap().0);
        }
    });
    let settings = ClientSettings { mode: Mode::ClosesFirst, ..settings(target) };
    let (ended, closes) = run_many(3, &settings);
    assert!(ended.iter().all(|end| end.reuse == Reuse::Fresh && end.outcome.symptom().is_none()));
    assert_eq!(closes, Closes { server: 0, client: 3 });
}

fn run_many(count: usize, settings: &ClientSettings) -> (Vec<RequestEnded>, Closes) {
    let stop = Stop::default();
    let mut ended = Vec::new();
    let mut begun = 0;
    let closes = client::run(settings, &stop, &mut |event| match event.kind {
        EventKind::RequestEnded(end) => ended.push(end),
        _ => {
            begun += 1;
            if begun == count {
                stop.request();
            }
        }
    })
    .unwrap();
    ended.truncate(count);
    (ended, closes)
}

/// Answers each request that comes, until the client closes.
fn answer_all(mut stream: TcpStream, most: usize) -> Option<TcpStream> {
    for _ in 0..most {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => request.push(byte[0]),
                _ => return None,
            }
        }
        let text = String::from_utf8(request).unwrap();
        assert!(!text.to_ascii_lowercase().contains("connection: close"), "{text}");
        stream.write_all(KEPT.as_bytes()).unwrap();
    }
    Some(stream)
}

fn nths(ended: &[RequestEnded]) -> Vec<u32> {
    ended
        .iter()
        .map(|end| match end.reuse {
            Reuse::KeepAlive { nth } => nth,
            Reuse::Fresh => panic!("not in this mode"),
        })
        .collect()
}

#[test]
fn a_worker_asks_on_one_connection_for_as_long_as_it_is_there() {
    let (ended, closes) = ask_many(5, PATIENT, |_, stream| drop(answer_all(stream, 100)));
    assert_eq!(nths(&ended), [0, 1, 2, 3, 4]);
    let first = &ended[0];
    assert!(first.connect.is_some() && first.source.is_some_and(|source| source.port() != 0));
    for end in &ended {
        assert_eq!(end.outcome, Outcome::Answered { status: 200 });
        assert_eq!((end.source, end.target), (first.source, first.target));
        assert_eq!(end.received, KEPT.len() as u64);
        assert!(end.connect.is_none() || end.id == first.id);
    }
    assert_eq!(closes, Closes { server: 0, client: 1 }, "the run was over first");
}

#[test]
fn a_server_that_says_close_is_believed() {
    let (ended, closes) = ask_many(4, PATIENT, |number, stream| {
        if number > 0 {
            return drop(answer_all(stream, 100));
        }
        let mut stream = answer_all(stream, 1).unwrap();
        read_request(&mut stream);
        stream.write_all(ANSWER.as_bytes()).unwrap();
        // Its FIN comes only when the client has long had the answer.
        thread::sleep(Duration::from_millis(100));
    });
    assert_eq!(nths(&ended), [0, 1, 0, 1]);
    assert!(ended.iter().all(|end| end.outcome == Outcome::Answered { status: 200 }));
    assert_ne!(ended[1].source, ended[2].source);
    assert_eq!(closes, Closes { server: 1, client: 1 });
}

#[test]
fn a_connection_that_was_seen_to_close_carries_no_request() {
    // The FIN comes in one segment with the answer, or close after: before the next request.
    let (ended, _) = ask_many(6, PATIENT, |_, stream| {
        let Some(mut stream) = answer_all(stream, 1) else { return };
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        hold_quietly(&mut stream);
    });
    // Whether a request was faster than the FIN or not: none was lost in silence.
    for end in &ended {
        match end.outcome {
            Outcome::Answered { .. } => assert_eq!(nths(std::slice::from_ref(end)), [0]),
            Outcome::Failed { symptom, .. } => {
                assert_eq!((symptom, end.received), (Symptom::Closed, 0));
                assert_eq!(nths(std::slice::from_ref(end)), [1]);
            }
        }
    }
}

fn hold_quietly(stream: &mut TcpStream) {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
}

/// The second request on the first connection meets `end`; it, and the one after.
fn ended_by(end: impl Fn(TcpStream) + Send + 'static) -> (RequestEnded, RequestEnded) {
    let (mut ended, _) = ask_many(3, PATIENT, move |number, stream| {
        if number > 0 {
            return drop(answer_all(stream, 100));
        }
        let mut stream = answer_all(stream, 1).unwrap();
        // Before its first byte the connection was sound.
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        end(stream);
    });
    assert_eq!(nths(&ended), [0, 1, 0], "a client reconnects after a failure");
    let after = ended.pop().unwrap();
    (ended.pop().unwrap(), after)
}

#[test]
fn a_request_on_a_connection_just_closed_is_told_from_an_answer_that_was_cut() {
    let closed = |stream: TcpStream| {
        // Read out, so that the close is no RST.
        let mut stream = stream;
        let mut rest = Vec::new();
        let mut byte = [0];
        while !rest.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
    };
    let (failed_, after) = ended_by(closed);
    assert_eq!(failed_.outcome, failed(Symptom::Closed, None, None));
    assert_eq!(failed_.received, 0, "nothing of an answer");
    assert_eq!(after.outcome, Outcome::Answered { status: 200 });
    assert_ne!(after.source, failed_.source);

    // Unread bytes make the close a RST.
    let (failed_, after) = ended_by(drop);
    assert_eq!(failed_.outcome, failed(Symptom::Reset, Some(Errno::ECONNRESET), None));
    assert_eq!(failed_.received, 0);
    assert_eq!(after.outcome, Outcome::Answered { status: 200 });

    let part = "HTTP/1.1 200 OK\r\ncontent-le";
    for (part, status) in [(part, None), (&KEPT[..KEPT.len() - 1], Some(200))] {
        let (failed_, _) = ended_by(move |mut stream| {
            let mut rest = [0; 1024];
            let _ = stream.read(&mut rest).unwrap();
            stream.write_all(part.as_bytes()).unwrap();
        });
        assert_eq!(failed_.outcome, failed(Symptom::Closed, None, status));
        assert_eq!(failed_.received, part.len() as u64, "cut in the middle");
    }
}

#[test]
fn an_answer_that_does_not_come_on_a_kept_connection_is_a_response_timeout() {
    let (ended, _) = ask_many(3, IMPATIENT, |number, stream| {
        if number > 0 {
            return drop(answer_all(stream, 100));
        }
        let mut stream = answer_all(stream, 1).unwrap();
        hold_quietly(&mut stream);
    });
    assert_eq!(nths(&ended), [0, 1, 0]);
    assert_eq!(ended[1].outcome, failed(Symptom::ResponseTimeout, None, None));
    assert!(ended[1].total >= IMPATIENT);
    assert_eq!(ended[2].outcome, Outcome::Answered { status: 200 });
}

#[test]
fn the_demo_app_keeps_connections_only_where_it_is_told_to() {
    let app =
        |keep_alive| demo_app_with(ServerSettings { keep_alive, ..app_settings(Duration::ZERO) });
    let (ended, _) = run_many(6, &ClientSettings { workers: 2, ..keep_alive(app(true)) });
    let on_kept = nths(&ended).iter().filter(|nth| **nth > 0).count();
    // The first worker may be done with all of them before the second begins.
    assert!((4..=5).contains(&on_kept), "two workers, a connection each: {on_kept}");
    let (ended, closes) = run_many(4, &keep_alive(app(false)));
    assert_eq!(nths(&ended), [0, 0, 0, 0]);
    assert_eq!(closes, Closes { server: 4, client: 0 });
}

/// The median time of a request on a kept connection.
fn median(two_writes: bool, nodelay: bool) -> Duration {
    let target = demo_app_with(ServerSettings {
        keep_alive: true,
        two_writes,
        nodelay,
        ..app_settings(Duration::ZERO)
    });
    let (ended, _) = run_many(30, &keep_alive(target));
    let mut times: Vec<Duration> = ended.iter().map(|end| end.total).collect();
    assert_eq!(times.len(), 30);
    times.sort();
    times[15]
}

#[test]
fn two_small_writes_wait_for_the_delayed_acknowledgement_unless_told_not_to() {
    // The second write waits (Nagle) for the acknowledgement of the first, which the client's kernel delays by
    // 40 ms (TCP_DELACK_MIN, include/net/tcp.h) since it has nothing to send.
    let delayed = median(true, false);
    assert!(delayed >= Duration::from_millis(35), "{delayed:?}");
    for (two_writes, nodelay) in [(true, true), (false, false)] {
        let prompt = median(two_writes, nodelay);
        assert!(prompt < Duration::from_millis(35), "{prompt:?}");
    }
}

#[test]
fn a_request_that_has_arrived_when_the_drain_begins_is_answered() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: web\r\n\r\n";

    let settings = ServerSettings { keep_alive: true, ..app_settings(Duration::from_millis(1)) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(settings.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = server::App::new(&settings).unwrap();
        let (ask, asked) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let asked = async { asked.await.unwrap() };
            server::drain(server::serve(listener, app, asked).await).await;
        });
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}\n") {
            stream.read_buf(&mut answer).await.unwrap();
        }
        // The connection is idle. Now the request comes, and nobody has looked at it when the drain begins.
        assert_eq!(stream.try_write(REQUEST).unwrap(), REQUEST.len());
        ask.send(()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer:?}");
        assert!(answer.contains("connection: close\r\n"), "{answer:?}");
        server.await.unwrap();
    });
}
