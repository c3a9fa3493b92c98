use std::fmt::Write;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::model::{ClockAnchor, Event, EventKind, Resolution, Symptom};

fn read(form: Form, columns: &Columns, bytes: &[u8], chunk: usize) -> (Vec<Request>, Counts) {
    let mut reader = Reader::new(form, columns.clone());
    let mut chunks = bytes.chunks(chunk);
    let mut requests = Vec::new();
    loop {
        match reader.step() {
            Step::Item(request) => requests.push(request),
            Step::More => match chunks.next() {
                Some(chunk) => reader.feed(chunk),
                None => reader.close(),
            },
            Step::End => return (requests, reader.counts().clone()),
        }
    }
}

fn words(requests: &[Request], counts: &Counts) -> String {
    let mut words = String::new();
    for request in requests {
        let Request { start, total, outcome, .. } = request;
        write!(words, "{} ±{} for {total:?}", start.at.0, start.step_ns).unwrap();
        match (request.source, request.source_port) {
            (None, None) => {}
            (source, port) => write!(words, " from {source:?}:{port:?}").unwrap(),
        }
        if let Some(target) = request.target {
            write!(words, " to {target}").unwrap();
        }
        match outcome {
            Outcome::Answered { status } => write!(words, " answered {status}").unwrap(),
            Outcome::Failed { symptom, errno, status } => {
                write!(words, " {symptom} errno {errno:?} status {status:?}").unwrap();
            }
        }
        if request.phase_unknown {
            write!(words, " at some time").unwrap();
        }
        if let Some(connect) = request.connect {
            write!(words, " connected {connect:?}").unwrap();
        }
        if let Some(pod) = &request.pod {
            write!(words, " by {pod}").unwrap();
        }
        words.push('\n');
    }
    for (reason, passed) in counts.unread.reasons() {
        writeln!(words, "unread: {reason} {}x, first in line {}", passed.count, passed.line)
            .unwrap();
    }
    words.replace("Some(", "(")
}

fn check_with(columns: &Columns, text: &str, expected: Expect) {
    let form = form_of(text.as_bytes(), columns).expect("it is a log of requests");
    let (requests, counts) = read(form, columns, text.as_bytes(), usize::MAX);
    expected.assert_eq(&words(&requests, &counts));
    for chunk in [1, 7, 64] {
        let in_pieces = read(form, columns, text.as_bytes(), chunk);
        assert_eq!(in_pieces, (requests.clone(), counts.clone()), "in pieces of {chunk}");
    }
}

fn check(text: &str, expected: Expect) {
    check_with(&Columns::default(), text, expected);
}

fn recorded() -> Vec<u8> {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/kubernetes-1.36-readiness/requests.csv.zst"
    );
    zstd::decode_all(&std::fs::read(file).unwrap()[..]).unwrap()
}

#[test]
fn the_recorded_requests_are_read_to_the_last() {
    let log = recorded();
    let form = form_of(&log[..4096], &Columns::default()).unwrap();
    let (requests, counts) = read(form, &Columns::default(), &log, 64 * 1024);
    assert!(counts.unread.is_empty(), "{:?}", counts.unread);
    let of =
        |symptom| requests.iter().filter(|request| request.outcome.symptom() == symptom).count();
    assert_eq!(requests.len(), 28_485);
    assert_eq!(of(Some(Symptom::ConnectTimeout)), 78);
    assert_eq!(of(Some(Symptom::Refused)), 9);
    assert_eq!(of(Some(Symptom::Closed)), 3);
    assert_eq!(of(None), 28_395);
    // Its client did not know the port of a connect that failed, but said whom it dialled.
    assert_eq!((counts.without_port, counts.phase_unknown), (78 + 9, 0));
    let dialled = requests.iter().filter(|request| request.target.is_some()).count();
    assert_eq!(dialled, 78 + 9);
    let late_from = WallNs(1_796_091_223_760_000_000);
    let timeouts =
        requests.iter().filter(|it| it.outcome.symptom() == Some(Symptom::ConnectTimeout));
    assert_eq!(timeouts.filter(|request| request.start.at > late_from).count(), 51);
}

#[test]
fn the_first_recorded_rows() {
    let log = String::from_utf8(recorded()).unwrap();
    let rows: Vec<&str> = log.lines().collect();
    let failed = rows.iter().filter(|row| !row.contains(",ok,")).take(4).copied();
    let text = failed.chain([rows[1]]).collect::<Vec<_>>().join("\n");
    check(
        &text,
        expect![[r#"
            1796091212697700000 ±100000 for 13.9ms from None:(60272) closed errno None status None
            1796091212754600000 ±100000 for 200µs to 10.96.0.10:80 refused errno None status None
            1796091212802700000 ±100000 for 100µs to 10.96.0.10:80 refused errno None status None
            1796091205196100000 ±100000 for 53.3ms from None:(49936) answered 0
        "#]],
    );
}

#[test]
fn our_own_logs_come_back_as_they_were() {
    let target = Some("10.96.0.1:80".parse().unwrap());
    let failed = |symptom, errno| Outcome::Failed { symptom, errno, status: None };
    let ended =
        |id, source: Option<&str>, outcome, connect: Option<u64>, pod: Option<&str>| RequestEnded {
            id: RequestId(id),
            source: source.map(|source| source.parse().unwrap()),
            target,
            reuse: if id == 1 { Reuse::KeepAlive { nth: 3 } } else { Reuse::Fresh },
            resolution: (id == 2)
                .then_some(Resolution { took: Duration::from_millis(7), failed: None }),
            received: 100 * id,
            outcome,
            connect: connect.map(Duration::from_micros),
            total: Duration::from_nanos(51_000_700 + id),
            pod: pod.map(str::to_owned),
        };
    let answered = Outcome::Answered { status: 200 };
    let expected = [
        ended(0, Some("10.0.0.5:40002"), answered, Some(250), Some("web, \"a\"")),
        ended(1, Some("[fd00::5]:40004"), failed(Symptom::ConnectTimeout, None), None, None),
        ended(2, None, failed(Symptom::Local, Some(99)), None, None),
    ];
    let anchor = ClockAnchor {
        mono: MonoNs(1_000_000_000),
        wall: WallNs(1_700_000_000_000_000_000),
        error_ns: 50,
    };
    for format in [LogFormat::Csv, LogFormat::JsonLines] {
        let mut log = LogWriter::new(format, anchor);
        let mut bytes = Vec::new();
        log.header(&mut bytes);
        for ended in &expected {
            let time = MonoNs(2_000_000_000) + ended.total;
            let kind = EventKind::RequestEnded(ended.clone());
            log.event(&Event { time, kind }, &mut bytes);
        }
        let form = form_of(&bytes, &Columns::default()).unwrap();
        let (requests, counts) = read(form, &Columns::default(), &bytes, 100);
        assert!(counts.unread.is_empty(), "{:?}", counts.unread);
        assert_eq!(requests.len(), expected.len());
        for (request, expected) in requests.iter().zip(&expected) {
            let id = RequestId(request.id.unwrap());
            let events = request.events(id, Client::default()).unwrap();
            assert_eq!(events.ended, *expected);
            assert_eq!(request.start.at, WallNs(1_700_000_001_000_000_000));
            assert_eq!(request.start_mono, Some(MonoNs(2_000_000_000)));
        }
    }
}

#[test]
fn columns_are_known_by_their_names_and_units() {
    check(
        "Start Time (ms);src_port;Error;Latency (µs);status\n1796091212856;40002;;51400;200\n1796091212857;40004;connect ETIMEDOUT 10.96.0.10:80;3002000;\n",
        expect![[r#"
            1796091212856000000 ±1000000 for 51.4ms from None:(40002) answered 200
            1796091212857000000 ±1000000 for 3.002s from None:(40004) connect-timeout errno None status None
        "#]],
    );
    check(
        "startedAt\tlocalAddr\tresult\tduration\n2026-12-01T02:13:32.25Z\t10.0.0.5:40002\tOK\t51.4ms\n2026-12-01 02:13:33+00:00\t[fd00::5]:40004\t503 Service Unavailable\t0.2\n",
        expect![[r#"
            1796091212250000000 ±10000000 for 51.4ms from (10.0.0.5):(40002) answered 0
            1796091213000000000 ±1000000000 for 200ms from (fd00::5):(40004) wrong-answer errno None status (503)
        "#]],
    );
    // JMeter's.
    check(
        "timeStamp,elapsed,label,responseCode,responseMessage,threadName,success,failureMessage,Connect\n1796091212856,3001,GET,Non HTTP response code: java.net.SocketTimeoutException,Connect timed out,t 1,false,Connect timed out,3001\n1796091212900,52,GET,200,OK,t 1,true,,1\n",
        expect![[r#"
            1796091212856000000 ±1000000 for 3.001s connect-timeout errno None status None
            1796091212900000000 ±1000000 for 52ms answered 200 connected 1ms
        "#]],
    );
}

#[test]
fn other_names_are_told_by_options() {
    let columns = Columns {
        start: Some("wann".to_owned()),
        source_port: Some("Tor".to_owned()),
        outcome: Some("wie".to_owned()),
        duration: Some("dauer".to_owned()),
        duration_unit: Some(Unit::Milliseconds),
        ..Columns::default()
    };
    let text = "wann,Tor,wie,dauer,error\n1796091212.5,40002,ok,51.4,timeout\n";
    assert_eq!(form_of(text.as_bytes(), &Columns::default()), None);
    check_with(
        &columns,
        text,
        expect![[r#"
        1796091212500000000 ±100000000 for 51.4ms from None:(40002) answered 0
    "#]],
    );
}

#[test]
fn vegeta_in_both_its_forms() {
    check(
        "1796091212856558001,200,51400123,0,11,,SGVsbG8=,,0,GET,http://10.96.0.10/,SGVhZGVy\n1796091212906558001,0,3000812345,0,0,\"Get \"\"http://10.96.0.10/\"\": dial tcp 0.0.0.0:0->10.96.0.10:80: i/o timeout\",,,1\n1796091212956558001,503,1400123,0,0,503 Service Unavailable,,,2,GET,http://10.96.0.10/,\n1796091212956558001,0,3000000000,0,0,\"Get \"\"http://10.96.0.10/\"\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)\",,,3,GET,http://[fd00::a]:8080/x,\n1796091212956558001,0\n",
        expect![[r#"
            1796091212856558001 ±1 for 51.400123ms to 10.96.0.10:80 answered 200
            1796091212906558001 ±1 for 3.000812345s to 10.96.0.10:80 connect-timeout errno None status None
            1796091212956558001 ±1 for 1.400123ms to 10.96.0.10:80 wrong-answer errno None status (503)
            1796091212956558001 ±1 for 3s to [fd00::a]:8080 connect-timeout errno None status None at some time
            unread: a row that is not vegeta's 1x, first in line 5
        "#]],
    );
    check(
        r#"{"attack":"","seq":0,"code":200,"timestamp":"2026-12-01T03:13:32.856558001+01:00","latency":51400123,"bytes_out":0,"bytes_in":11,"error":"","body":"SGVsbG8=","method":"GET","url":"http://10.96.0.10","headers":{"Date":["x"]}}
{"attack":"","seq":1,"code":0,"timestamp":"2026-12-01T03:13:33.856558001+01:00","latency":812345,"bytes_out":0,"bytes_in":0,"error":"Get \"http://10.96.0.10\": dial tcp 10.96.0.10:80: connect: connection refused","body":null,"method":"GET","url":"http://web.default.svc","headers":null}
{"attack":"","seq":2,"code":0,"timest
"#,
        expect![[r#"
            1796091212856558001 ±1 for 51.400123ms to 10.96.0.10:80 answered 200
            1796091213856558001 ±1 for 812.345µs to 10.96.0.10:80 refused errno None status None
            unread: a line that is no JSON object 1x, first in line 3
        "#]],
    );
}

#[test]
fn oha_counts_from_the_beginning_of_its_run_and_keeps_successes_only() {
    let text = "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n0.002211678,0.000374078,0.001148565,0.002619327,0.002626127,11,200\n";
    check(
        text,
        expect![[r#"
        unread: a start that is counted from a time that is not given 1x, first in line 2
    "#]],
    );
    let began = Some(WallNs(1_796_091_212_000_000_000));
    check_with(
        &Columns { began, ..Columns::default() },
        text,
        expect![[r#"
        1796091212002211678 ±1 for 2.626127ms answered 200
    "#]],
    );
    check(
        "{\n  \"summary\": {\n    \"successRate\": 1.0\n  }\n}",
        expect![[r#"
            unread: oha's summary has no requests; `oha --output-format csv` has 5x, first in line 1
        "#]],
    );
}

#[test]
fn rows_that_tell_too_little_are_counted_by_their_reason() {
    check(
        "start,source_port,outcome,duration,status
1796091212.5,40002,ok,0.05,
1796091212.5,40002,it broke,0.05,
1796091212.5,40002,,0.05,
1796091212.5,70000,ok,0.05,
1796091212.5,40002,ok,soon,
12,40002,ok,0.05,
yesterday,40002,ok,0.05,
,,,,
1796091212.5,0,,0.05,404
1796091212.5
\"1796091212.5,40002,ok,0.05
1796091212.5,40002,ok,5e-5,
",
        expect![[r#"
            1796091212500000000 ±100000000 for 50ms from None:(40002) answered 0
            1796091212500000000 ±100000000 for 50ms answered 404
            1796091212500000000 ±100000000 for 50µs from None:(40002) answered 0
            unread: a duration that is none 1x, first in line 6
            unread: a port that is none 1x, first in line 5
            unread: a row that does not tell how it ended 1x, first in line 4
            unread: a row without its duration 1x, first in line 11
            unread: a row without its start 1x, first in line 9
            unread: a start that is counted from a time that is not given 1x, first in line 7
            unread: a start that is no time 2x, first in line 8
            unread: unknown wording: it broke 1x, first in line 3
        "#]],
    );
}

#[test]
fn what_clients_say_is_one_symptom_or_unknown() {
    use wording::{Said, said};
    let mut table = String::new();
    for text in [
        "ok",
        "HTTP 200",
        "204",
        "404 Not Found",
        "503 Service Unavailable",
        "connect-timeout",
        // Go
        "dial tcp 10.96.0.10:80: i/o timeout",
        "dial tcp 10.96.0.10:80: connect: connection refused",
        "dial tcp 10.96.0.10:80: connect: no route to host",
        "dial tcp 10.96.0.10:80: connect: connection timed out",
        "dial tcp 10.96.0.10:80: connect: cannot assign requested address",
        "dial tcp: lookup web on 10.96.0.53:53: read udp 10.0.0.5:4000->10.96.0.53:53: i/o timeout",
        "Get \"http://web\": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)",
        "Get \"http://web\": context deadline exceeded",
        "read tcp 10.0.0.5:40002->10.96.0.10:80: i/o timeout",
        "read tcp 10.0.0.5:40002->10.96.0.10:80: read: connection reset by peer",
        "read:EOF",
        "Get \"http://web\": EOF",
        "unexpected EOF",
        "http: server closed idle connection",
        "write: broken pipe",
        // Python
        "HTTPConnectionPool(host='web', port=80): Max retries exceeded with url: / (Caused by ConnectTimeoutError(<...>, 'Connection to web timed out. (connect timeout=3)'))",
        "HTTPConnectionPool(host='web', port=80): Read timed out. (read timeout=3)",
        "ConnectionRefusedError: [Errno 111] Connect call failed ('10.96.0.10', 80)",
        "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
        "[Errno -2] Name or service not known",
        "OSError: [Errno 113] No route to host",
        "ServerDisconnectedError: Server disconnected",
        "TimeoutError",
        // Java
        "java.net.SocketTimeoutException: connect timed out",
        "java.net.SocketTimeoutException: Read timed out",
        "java.net.ConnectException: Connection refused (Connection refused)",
        "java.net.NoRouteToHostException: Host is unreachable",
        "org.apache.http.NoHttpResponseException: web:80 failed to respond",
        "java.net.UnknownHostException: web",
        // Node
        "Error: connect ETIMEDOUT 10.96.0.10:80",
        "Error: connect ECONNREFUSED 10.96.0.10:80",
        "Error: connect EHOSTUNREACH 10.96.0.10:80",
        "Error: read ECONNRESET",
        "Error: socket hang up",
        "ConnectTimeoutError: Connect Timeout Error",
        "HeadersTimeoutError: Headers Timeout Error",
        "Error: getaddrinfo ENOTFOUND web",
        // curl
        "curl: (28) Connection timed out after 3001 milliseconds",
        "curl: (28) Failed to connect to web port 80 after 3001 ms: Timeout was reached",
        "curl: (28) Operation timed out after 3000 milliseconds with 0 bytes received",
        "curl: (7) Failed to connect to web port 80: Connection refused",
        "curl: (7) Failed to connect to web port 80 after 1 ms: Couldn't connect to server",
        "curl: (52) Empty reply from server",
        "curl: (56) Recv failure: Connection reset by peer",
        "curl: (6) Could not resolve host: web",
        // Rust
        "error trying to connect: tcp connect error: Connection refused (os error 111)",
        "error trying to connect: operation timed out",
        "connection closed before message completed",
        "tcp connect error: Network is unreachable (os error 101)",
        "504 Gateway Timeout",
        "it broke",
    ] {
        let said = match said(text) {
            Said::Failed(symptom) => symptom.name().to_owned(),
            other => format!("{other:?}"),
        };
        writeln!(table, "{said:<16} {text}").unwrap();
    }
    expect![[r#"
        Well             ok
        Status(200)      HTTP 200
        Status(204)      204
        Status(404)      404 Not Found
        Status(503)      503 Service Unavailable
        connect-timeout  connect-timeout
        connect-timeout  dial tcp 10.96.0.10:80: i/o timeout
        refused          dial tcp 10.96.0.10:80: connect: connection refused
        unreachable      dial tcp 10.96.0.10:80: connect: no route to host
        connect-timeout  dial tcp 10.96.0.10:80: connect: connection timed out
        local            dial tcp 10.96.0.10:80: connect: cannot assign requested address
        local            dial tcp: lookup web on 10.96.0.53:53: read udp 10.0.0.5:4000->10.96.0.53:53: i/o timeout
        connect-timeout  Get "http://web": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)
        TimedOut         Get "http://web": context deadline exceeded
        response-timeout read tcp 10.0.0.5:40002->10.96.0.10:80: i/o timeout
        reset            read tcp 10.0.0.5:40002->10.96.0.10:80: read: connection reset by peer
        closed           read:EOF
        closed           Get "http://web": EOF
        closed           unexpected EOF
        closed           http: server closed idle connection
        reset            write: broken pipe
        connect-timeout  HTTPConnectionPool(host='web', port=80): Max retries exceeded with url: / (Caused by ConnectTimeoutError(<...>, 'Connection to web timed out. (connect timeout=3)'))
        response-timeout HTTPConnectionPool(host='web', port=80): Read timed out. (read timeout=3)
        refused          ConnectionRefusedError: [Errno 111] Connect call failed ('10.96.0.10', 80)
        reset            ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))
        closed           ('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))
        local            [Errno -2] Name or service not known
        unreachable      OSError: [Errno 113] No route to host
        closed           ServerDisconnectedError: Server disconnected
        TimedOut         TimeoutError
        connect-timeout  java.net.SocketTimeoutException: connect timed out
        response-timeout java.net.SocketTimeoutException: Read timed out
        refused          java.net.ConnectException: Connection refused (Connection refused)
        unreachable      java.net.NoRouteToHostException: Host is unreachable
        closed           org.apache.http.NoHttpResponseException: web:80 failed to respond
        local            java.net.UnknownHostException: web
        connect-timeout  Error: connect ETIMEDOUT 10.96.0.10:80
        refused          Error: connect ECONNREFUSED 10.96.0.10:80
        unreachable      Error: connect EHOSTUNREACH 10.96.0.10:80
        reset            Error: read ECONNRESET
        closed           Error: socket hang up
        connect-timeout  ConnectTimeoutError: Connect Timeout Error
        response-timeout HeadersTimeoutError: Headers Timeout Error
        local            Error: getaddrinfo ENOTFOUND web
        connect-timeout  curl: (28) Connection timed out after 3001 milliseconds
        connect-timeout  curl: (28) Failed to connect to web port 80 after 3001 ms: Timeout was reached
        response-timeout curl: (28) Operation timed out after 3000 milliseconds with 0 bytes received
        refused          curl: (7) Failed to connect to web port 80: Connection refused
        Unknown          curl: (7) Failed to connect to web port 80 after 1 ms: Couldn't connect to server
        closed           curl: (52) Empty reply from server
        reset            curl: (56) Recv failure: Connection reset by peer
        local            curl: (6) Could not resolve host: web
        refused          error trying to connect: tcp connect error: Connection refused (os error 111)
        connect-timeout  error trying to connect: operation timed out
        closed           connection closed before message completed
        unreachable      tcp connect error: Network is unreachable (os error 101)
        Status(504)      504 Gateway Timeout
        Unknown          it broke
    "#]].assert_eq(&table);
}

#[test]
fn a_request_without_a_port_has_no_source_but_its_times() {
    let text = "start,source_port,outcome,duration\n1796091212.5,,i/o timeout,3\n";
    let form = form_of(text.as_bytes(), &Columns::default()).unwrap();
    let (requests, counts) = read(form, &Columns::default(), text.as_bytes(), 100);
    assert_eq!((counts.without_port, counts.phase_unknown), (1, 1));
    let client = Client {
        source: Some("10.0.0.5".parse().unwrap()),
        target: Some("10.96.0.10:80".parse().unwrap()),
    };
    assert_eq!(requests[0].events(RequestId(0), Client::default()), None);
    let events = requests[0].events(RequestId(0), client).unwrap();
    assert_eq!((events.ended.source, events.ended.target), (None, client.target));
    assert_eq!(events.end.0 - events.start.0, 3_000_000_000);
}

fn a_row() -> impl Strategy<Value = String> {
    let cell = prop_oneof![
        Just("1796091212.5".to_owned()),
        Just("1796091212856558001".to_owned()),
        Just("200".to_owned()),
        Just("ok".to_owned()),
        Just("dial tcp 1:".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("1e300".to_owned()),
        "[-0-9a-zµ.\": ]{0,12}",
    ];
    proptest::collection::vec(cell, 0..14).prop_map(|cells| cells.join(","))
}

fn any_form() -> impl Strategy<Value = Form> {
    proptest::sample::select(
        &[
            Form::Csv { separator: b',' },
            Form::Csv { separator: b'\t' },
            Form::VegetaCsv,
            Form::JsonLines,
            Form::OhaSummary,
        ][..],
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_counted(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        rows in proptest::collection::vec(a_row(), 0..8),
        json in "(\\{|\\}|\"start\":|\"duration\":|\"error\":|1796091212.5|\"x|\"|,|\n){0,30}",
        form in any_form(),
        chunk in 1..60_usize,
    ) {
        let columns = Columns { began: Some(WallNs(i64::MAX - 5)), ..Columns::default() };
        let header = "start,source_port,outcome,duration,status,connect,target,source\n";
        let rows = header.to_owned() + &rows.join("\n");
        for bytes in [bytes, rows.into_bytes(), json.into_bytes()] {
            let whole = read(form, &columns, &bytes, usize::MAX);
            prop_assert_eq!(&read(form, &columns, &bytes, chunk), &whole);
            let _ = looks_like(&bytes);
            for request in &whole.0 {
                let target = Some("10.96.0.10:80".parse().unwrap());
                let events = request.events(RequestId(0), Client { source: None, target });
                prop_assert!(events.is_some());
            }
        }
    }

    #[test]
    fn any_wording_says_something(text in any::<String>()) {
        let _ = (wording::said(&text), wording::errno(&text), wording::dialled(&text));
    }
}
