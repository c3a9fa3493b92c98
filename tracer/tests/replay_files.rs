//! `tracer replay` over what people have: a real rollout's capture, conntrack log, watches and request log, whole,
//! in pieces, and damaged. What must come out was counted by hand: examples/kubernetes-1.36-readiness/README.md.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

const CAPTURE: &str = "syn-rst.pcap.zst";
const PODS: &str = "watch-pods.json.zst";
const DEPLOYMENTS: &str = "watch-deployments.json.zst";
const REQUESTS: &str = "requests.csv.zst";
/// The rollout's true beginning, in nanoseconds of Unix time.
const BEGAN: u64 = 1_796_091_210_095_000_000;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kubernetes-1.36-readiness").join(name)
}

/// The fixture's bytes, unpacked.
fn bytes(name: &str) -> Vec<u8> {
    zstd::decode_all(&fs::read(fixture(name)).unwrap()[..]).unwrap()
}

fn run(paths: &[PathBuf]) -> Output {
    let tracer = env!("CARGO_BIN_EXE_tracer");
    Command::new(tracer).args(["replay", "--format", "json"]).args(paths).output().unwrap()
}

fn replay(paths: &[PathBuf]) -> Value {
    let output = run(paths);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Refused with status 2 and this one line.
fn refused(path: &Path, why: &str) {
    let output = run(&[path.to_owned()]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, format!("tracer: {} {why}\n", path.display()));
    assert!(output.stdout.is_empty());
}

/// A folder with the whole recording, in which some files are replaced.
fn with(replaced: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture("")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap();
        if replaced.iter().all(|(replaced, _)| name.to_str() != Some(replaced)) {
            fs::copy(&path, folder.path().join(name)).unwrap();
        }
    }
    for (name, bytes) in replaced {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// Where each packet of a capture with microseconds begins, and its time.
fn packets(capture: &[u8]) -> Vec<(std::ops::Range<usize>, u64)> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    let unit = match word(0) {
        0xa1b2_c3d4 => 1000,
        0xa1b2_3c4d => 1,
        other => panic!("the fixture has a magic number of {other:x}"),
    };
    let mut at = 24;
    let mut packets = Vec::new();
    while at < capture.len() {
        let end = at + 16 + word(at + 8) as usize;
        packets
            .push((at..end, u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit));
        at = end;
    }
    packets
}

#[test]
fn the_whole_recording_is_supported_with_the_counts_of_its_readme() {
    let report = replay(&[fixture("")]);
    assert_eq!(report["hypothesis"]["outcome"], "supported");
    assert_eq!(report["hypothesis"]["share"], 1.0);
    assert_eq!(report["requests"]["total"], 28_485);
    let failures = json!({
        "early": { "stale-rules": 27, "pod-not-serving": 12 },
        "late": { "stale-entry-reuse": 51 },
    });
    assert_eq!(report["failures"], failures);
    let symptoms = json!({
        "early": { "connect-timeout": 27, "refused": 9, "closed": 3 },
        "late": { "connect-timeout": 51 },
    });
    assert_eq!(report["symptoms"], symptoms);
    assert_eq!(report["exposure"], json!({ "attempts": 51, "failed": 51 }));
    assert_eq!(report["losses"], json!([]));
}

#[test]
fn the_capture_alone_shows_the_same_51_and_says_what_is_missing() {
    let report = replay(&[fixture(CAPTURE)]);
    assert_eq!(report["exposure"], json!({ "attempts": 51, "failed": 51 }));
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive");
    let notes = report["notes"].to_string();
    for missing in ["no request log", "No file tells of pods", "120 s is assumed"] {
        assert!(notes.contains(missing), "{missing} is not in {notes}");
    }
}

#[test]
fn the_capture_with_pods_shows_the_same_51() {
    let report = replay(&[fixture(CAPTURE), fixture(PODS)]);
    assert_eq!(report["exposure"], json!({ "attempts": 51, "failed": 51 }));
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive");
    assert!(!report["notes"].to_string().contains("No file tells of pods"));
}

#[test]
fn a_conntrack_log_alone_tells_the_stale_entries_and_no_more() {
    let report = replay(&[fixture("conntrack-events.log.zst")]);
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive");
    let backends: BTreeSet<&str> = report["entries"]["pointing_at"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["backend"].as_str().unwrap())
        .collect();
    assert_eq!(backends, ["10.244.1.20:8080", "10.244.2.6:8080", "10.244.2.7:8080"].into());
    // Every entry on which a connect timed out early is there; each expires 120 s after it was made.
    let entries = report["entries"]["list"].as_array().unwrap();
    assert_eq!(entries.len(), STALE_IN_THE_LOG);
    for entry in entries {
        let life = entry["expires"].as_f64().unwrap() - entry["made"].as_f64().unwrap();
        assert!((life - 120.0).abs() < 0.001, "{entry}");
        assert_eq!(entry["service"], "10.96.0.10:80");
    }
    assert!(report["notes"].to_string().contains("leaves no line"));
}

/// The early connects that timed out made one each; a connect that met one made none.
const STALE_IN_THE_LOG: usize = 27;

#[test]
fn pods_that_live_on_make_it_not_supported() {
    let pods = bytes(PODS);
    let mut alive = Vec::new();
    for object in serde_json::Deserializer::from_slice(&pods).into_iter::<Value>() {
        let object = object.unwrap();
        if object["object"]["metadata"].get("deletionTimestamp").is_none() {
            alive.extend(serde_json::to_vec(&object).unwrap());
        }
    }
    let folder = with(&[(PODS, &alive)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_ne!(report["hypothesis"]["outcome"], "supported");
    assert_eq!(report["exposure"]["attempts"], 0);
}

#[test]
fn syn_times_shuffled_between_ports_make_it_not_supported() {
    let mut capture = bytes(CAPTURE);
    // Behind the record's header: Linux cooked v2 (20 bytes), IPv4 without options (20), TCP.
    let port_of = |capture: &[u8], at: usize| u16::from_be_bytes([capture[at], capture[at + 1]]);
    let connects: Vec<(usize, u32)> = packets(&capture)
        .into_iter()
        .map(|(range, _)| {
            let tcp = range.start + 16 + 40;
            let number = |at: usize| u32::from_be_bytes(capture[at..at + 4].try_into().unwrap());
            let is_syn = capture[tcp + 13] & 0x12 == 0x02;
            let end = if is_syn { tcp } else { tcp + 2 };
            (end, if is_syn { number(tcp + 4) } else { number(tcp + 8).wrapping_sub(1) })
        })
        .collect();
    // Each connect of the client keeps its times, its packets and its backend, and gets another one's port.
    let ports: Vec<u16> = connects
        .iter()
        .map(|(at, _)| port_of(&capture, *at))
        .filter(|port| *port >= 32_768)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut new_port: HashMap<u32, u16> = HashMap::new();
    for (at, isn) in connects {
        let next = ports[(new_port.len() * 7919 + 1) % ports.len()];
        let port = *new_port.entry(isn).or_insert(next);
        capture[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    let folder = with(&[(CAPTURE, &capture)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_ne!(report["hypothesis"]["outcome"], "supported", "{}", report["hypothesis"]);
}

#[test]
fn the_race_window_cut_out_makes_it_inconclusive() {
    let capture = bytes(CAPTURE);
    let mut cut = capture[..24].to_vec();
    for (range, time) in packets(&capture) {
        // From the first deletion to 10 s later.
        if !(BEGAN + 2_000_000_000..BEGAN + 12_000_000_000).contains(&time) {
            cut.extend(&capture[range]);
        }
    }
    let folder = with(&[(CAPTURE, &cut)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive", "{}", report["hypothesis"]);
    assert_eq!(report["requests"]["total"], 28_485);
}

#[test]
fn a_capture_that_ends_before_the_requests_proves_no_silence() {
    let capture = bytes(CAPTURE);
    let mut cut = capture[..24].to_vec();
    for (range, time) in packets(&capture) {
        if time < BEGAN + 60_000_000_000 {
            cut.extend(&capture[range]);
        }
    }
    let folder = with(&[(CAPTURE, &cut)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive", "{}", report["hypothesis"]);
    assert!(report["losses"].to_string().contains("capture file"));
}

#[test]
fn a_watch_that_broke_off_makes_it_inconclusive() {
    let mut pods = bytes(PODS);
    let gone = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "message": "too old resource version", "code": 410 } });
    pods.extend(serde_json::to_vec(&gone).unwrap());
    let folder = with(&[(PODS, &pods)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive", "{}", report["hypothesis"]);
}

#[test]
fn a_request_log_with_a_row_that_cannot_be_read_makes_it_inconclusive() {
    let mut log = bytes(REQUESTS);
    log.extend(b"1796091300.0000,40000,perhaps\n");
    let folder = with(&[(REQUESTS, &log)]);
    let report = replay(&[folder.path().to_owned()]);
    assert_eq!(report["hypothesis"]["outcome"], "inconclusive", "{}", report["hypothesis"]);
    assert!(report["losses"].to_string().contains("request log"));
}

#[test]
fn files_in_any_order_and_packed_or_not_give_the_same_counts() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("by-any-name");
    fs::write(&plain, bytes(REQUESTS)).unwrap();
    let report = replay(&[plain, fixture(DEPLOYMENTS), fixture(PODS), fixture(CAPTURE)]);
    assert_eq!(report["hypothesis"]["outcome"], "supported");
    assert_eq!(report["failures"]["late"], json!({ "stale-entry-reuse": 51 }));
}

#[test]
fn what_is_nothing_known_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    refused(&file("empty", b""), "is empty");
    refused(
        &file("binary", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0"),
        "is of no kind that can be replayed",
    );
    let nothing = tempfile::tempdir().unwrap();
    fs::write(nothing.path().join("notes.md"), "no recording").unwrap();
    refused(nothing.path(), "has no file of a kind that can be replayed");
    let mut capture = bytes(CAPTURE);
    capture[20..22].copy_from_slice(&105_u16.to_le_bytes());
    refused(
        &file("wifi.pcap", &capture),
        "is a capture of link type 105 (IEEE 802.11); capture on Ethernet, or on `any` (Linux cooked), or raw IP",
    );
}

#[test]
fn a_listing_alone_tells_the_stale_entries_of_its_moment() {
    let list = fixture("conntrack-list-30s-after-rollout.txt");
    let output = Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["replay", "--format", "json", "--listed-at", "1796091244.5"])
        .arg(&list)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let pointing_at: Vec<_> = report["entries"]["pointing_at"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["backend"].as_str().unwrap(), row["entries"].as_u64().unwrap()))
        .collect();
    // As counted by hand, all that the rollout left.
    assert_eq!(
        pointing_at,
        [("10.244.1.20:8080", 10), ("10.244.2.6:8080", 9), ("10.244.2.7:8080", 8)]
    );
    let began = report["clock"]["began_unix"].as_f64().unwrap();
    for entry in report["entries"]["list"].as_array().unwrap() {
        let at = |name: &str| began + entry[name].as_f64().unwrap();
        // Made while the rollout went on, and alive for 120 s.
        assert!((1_796_091_210.0..1_796_091_220.0).contains(&at("made")), "{entry}");
        assert!((at("expires") - at("made") - 120.0).abs() < 0.001, "{entry}");
    }
    assert!(report["notes"].to_string().contains("lists 27 entries of one moment"));
}

#[test]
fn columns_of_any_name_are_read_once_they_are_named() {
    let log = String::from_utf8(bytes(REQUESTS)).unwrap();
    let odd = log.replacen("start_unix_s,source_port,outcome,duration_s", "t0,p,how,took", 1);
    let folder = with(&[(REQUESTS, b"")]);
    fs::write(folder.path().join("odd.csv"), odd).unwrap();
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tracer"));
        command.args(["replay", "--format", "json"]).args(more).arg(folder.path());
        command.output().unwrap()
    };
    let named = ["start=t0", "source-port=p", "outcome=how", "duration=took"];
    let named: Vec<&str> = named.iter().flat_map(|name| ["--column", name]).collect();
    let output = run(&[&named[..], &["--duration-unit", "s"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["hypothesis"]["outcome"], "supported", "{}", report["notes"]);
    assert_eq!(report["requests"]["total"], 28_485);
    assert_eq!(report["exposure"], json!({ "attempts": 51, "failed": 51 }));

    let output = run(&[&named[..6], &["--column", "duration=tok"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "tracer: --column: there is no log of requests with a header\n");
    let output = run(&[&named[..], &["--column", "pod=host"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said,
        "tracer: --column: no log has a column called \"host\"; there are: t0, p, how, took\n"
    );
}

/// The same rollout as the other node would have captured it, its clock 37 ms ahead: made of the recording's packets
/// to and from that node's pods, each 0.2 ms later, or 0.3 ms earlier on the way back.
#[test]
fn two_nodes_clocks_are_compared_by_the_packets_that_both_saw() {
    let capture = bytes(CAPTURE);
    let mut other = capture[..24].to_vec();
    for (range, time) in packets(&capture) {
        let packet = &capture[range];
        // Linux cooked v2: the way at byte 10, the IP header from byte 20 on, behind the record's 16.
        let ip = 16 + 20;
        let is_there = |at: usize| packet[ip + at..ip + at + 3] == [10, 244, 2];
        let flags = packet[ip + 20 + 13];
        let (shift, way) = match (is_there(12), is_there(16), flags & 0x12) {
            (_, true, 0x02) => (37_000_000 + 200_000_i64, 0),
            (true, _, 0x12) => (37_000_000 - 300_000, 4),
            _ => continue,
        };
        let time = time.cast_signed() + shift;
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        let unit = if capture[..4] == 0xa1b2_3c4d_u32.to_le_bytes() { 1 } else { 1000 };
        other.extend((seconds as u32).to_le_bytes());
        other.extend(((rest / unit) as u32).to_le_bytes());
        other.extend(&packet[8..16 + 10]);
        other.push(way);
        other.extend(&packet[16 + 11..]);
    }
    let folder = with(&[("other-node.pcap", &other)]);
    let report = replay(&[folder.path().to_owned()]);
    let notes = report["notes"].to_string();
    let said = notes.split_once("The clock of ").expect("it says so").1;
    assert!(
        said.contains("other-node.pcap is ") && said.contains(" ms ahead of that of "),
        "{said}"
    );
    let number = |after: &str| -> f64 {
        let (_, rest) = said.split_once(after).expect(after);
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let (ahead, error) = (number("other-node.pcap is "), number("known to "));
    assert!((ahead - 37.0).abs() <= error && error <= 0.3, "{ahead} {error}");
    // What the client's node shows is still the same.
    assert_eq!(report["hypothesis"]["outcome"], "supported", "{}", report["hypothesis"]);
    assert_eq!(report["exposure"], json!({ "attempts": 51, "failed": 51 }));
}

#[test]
fn a_pipe_among_files_is_refused_and_nothing_of_it_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("log");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let output = run(&[fixture("syn-rst.pcap.zst"), pipe]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.ends_with("so save it to a file first\n"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
