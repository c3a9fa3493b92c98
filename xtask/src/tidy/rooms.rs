//! Who may import whom, and what pure rooms must not know.

use super::Violation;
use super::paths::{RustPath, SourceFile};

/// A room of tracer/src.
struct Room {
    name: &'static str,
    /// No I/O, no clock, no async.
    pure: bool,
    /// The rooms that it may import.
    may_import: &'static [&'static str],
}

const fn pure(name: &'static str, may_import: &'static [&'static str]) -> Room {
    Room { name, pure: true, may_import }
}

const fn edge(name: &'static str, may_import: &'static [&'static str]) -> Room {
    Room { name, pure: false, may_import }
}

/// The import table. A room that is not in it is refused; a new arrow is a commit of its own.
const ROOMS: [Room; 15] = [
    pure("model", &[]),
    pure("codec", &["model"]),
    pure("infer", &["model"]),
    pure("correlate", &["model"]),
    pure("verdict", &["model", "correlate"]),
    pure("report", &["model", "correlate", "verdict"]),
    pure("stream", &["model"]),
    edge("sys", &["model"]),
    edge("kernel", &["model", "stream", "codec", "sys"]),
    edge("files", &["model", "stream", "codec", "sys"]),
    edge("cluster", &["model", "stream", "codec", "sys"]),
    edge("loadgen", &["model", "stream", "sys"]),
    edge("lab", &["model", "stream", "sys"]),
    pure("monitor", &["model", "codec", "correlate", "verdict", "report"]),
    edge("pipeline", &["model", "stream", "correlate", "files"]),
];

/// The rooms at the top, which put the others together.
const APP: [&str; 4] = ["commands", "cli", "main", "lib"];

/// The only places that may speak of the BPF records.
const KNOWS_EBPF: [&str; 3] = ["codec/ring.rs", "codec/ring/", "kernel/"];

/// What a pure room must not touch, as the beginnings of paths.
const IMPURE: [&str; 19] = [
    "aya",
    "hyper",
    "kube",
    "nix",
    "socket2",
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread::sleep",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
];

/// The path of a file of tracer within `src`, and its room.
fn room<'a>(file: &SourceFile<'a>) -> Option<(&'a str, &'a str)> {
    let within = file.path.strip_prefix("tracer/src/")?;
    Some((within, within.split('/').next()?.trim_end_matches(".rs")))
}

/// Imports that the table does not have.
pub(crate) fn wrong_imports(file: &SourceFile) -> Vec<Violation> {
    let Some((within, name)) = room(file) else { return Vec::new() };
    if APP.contains(&name) {
        return Vec::new();
    }
    let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
        return vec![Violation::new(0, format!("`{name}` is not in the table of rooms"))];
    };
    let wrong = |path: &RustPath| {
        let first = path.segments[0].as_str();
        if first == "tracer_ebpf" && !KNOWS_EBPF.iter().any(|known| within.starts_with(known)) {
            return Some(
                "only codec::ring and kernel speak of the BPF records (tracer_ebpf)".to_owned(),
            );
        }
        let target = path.segments.get(1).filter(|_| first == "crate")?;
        let is_allowed = target == name || room.may_import.contains(&target.as_str());
        (!is_allowed).then(|| match room.may_import {
            [] => format!("`{name}` must not import `{target}`: it imports no room"),
            rooms => {
                format!("`{name}` must not import `{target}`: it may import {}", rooms.join(", "))
            }
        })
    };
    file.paths.iter().filter_map(|path| Some(Violation::new(path.line, wrong(path)?))).collect()
}

/// I/O, clocks and async in pure rooms. Their tests may read files.
pub(crate) fn impurities(file: &SourceFile) -> Vec<Violation> {
    let Some((_, name)) = room(file) else { return Vec::new() };
    if !ROOMS.iter().any(|room| room.name == name && room.pure) {
        return Vec::new();
    }
    let starts_with = |path: &RustPath, impure: &str| {
        let mut wanted = impure.split("::");
        let mut segments = path.segments.iter();
        wanted.all(|part| segments.next().is_some_and(|segment| segment == part))
    };
    let paths = file.paths.iter().filter(|path| !path.in_test).filter_map(|path| {
        let impure = IMPURE.iter().find(|impure| starts_with(path, impure))?;
        Some(Violation::new(path.line, format!("`{name}` is pure: no {impure}")))
    });
    let words = file.words.iter().filter(|word| !word.in_test).filter_map(|word| {
        let impure = ["async", "await", "println!", "eprintln!", "print!", "eprint!"];
        let impure = impure.iter().find(|impure| word.text == **impure)?;
        Some(Violation::new(word.line, format!("`{name}` is pure: no {impure}")))
    });
    paths.chain(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: fn(&SourceFile) -> Vec<Violation>, path: &str, text: &str) -> Vec<String> {
        let file = SourceFile::parse(path, text).unwrap();
        rule(&file).into_iter().map(|v| format!("{}: {}", v.line, v.text)).collect()
    }

    #[test]
    fn an_arrow_of_the_table_is_allowed_and_any_other_is_not() {
        let text = "use crate::model::Event;\nuse crate::correlate::Timeline;\n";
        assert!(found(wrong_imports, "tracer/src/verdict/rule.rs", text).is_empty());
        assert_eq!(
            found(wrong_imports, "tracer/src/stream/mod.rs", text),
            ["2: `stream` must not import `correlate`: it may import model"]
        );
    }

    #[test]
    fn edges_never_import_each_other_even_by_a_full_path() {
        let text = "fn f() -> u8 { crate::kernel::attach() }";
        assert_eq!(
            found(wrong_imports, "tracer/src/lab/nodes.rs", text),
            ["1: `lab` must not import `kernel`: it may import model, stream, sys"]
        );
        assert!(found(wrong_imports, "tracer/src/commands/lab.rs", text).is_empty());
    }

    #[test]
    fn the_bpf_records_are_known_to_two_places() {
        let text = "use tracer_ebpf::Record;";
        assert!(found(wrong_imports, "tracer/src/codec/ring.rs", text).is_empty());
        assert!(found(wrong_imports, "tracer/src/kernel/ring.rs", text).is_empty());
        assert_eq!(found(wrong_imports, "tracer/src/codec/trace.rs", text).len(), 1);
        assert_eq!(found(wrong_imports, "tracer/src/model/packet.rs", text).len(), 1);
    }

    #[test]
    fn a_room_that_is_not_in_the_table_is_refused() {
        let found = found(wrong_imports, "tracer/src/util/mod.rs", "");
        assert_eq!(found, ["0: `util` is not in the table of rooms"]);
    }

    #[test]
    fn pure_rooms_have_no_clock_no_files_and_no_async() {
        let text = "use std::{fs, time::{Duration, Instant}};\nasync fn f() {}\n\
                    #[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(
            found(impurities, "tracer/src/correlate/mod.rs", text),
            [
                "1: `correlate` is pure: no std::fs",
                "1: `correlate` is pure: no std::time::Instant",
                "2: `correlate` is pure: no async"
            ]
        );
        assert!(found(impurities, "tracer/src/sys/clock.rs", text).is_empty());
        assert!(
            found(impurities, "tracer/src/codec/x.rs", "use std::io::{Read, Write};").is_empty()
        );
    }

    #[test]
    fn the_table_has_no_way_round() {
        // Each room comes after those that it imports, but for the base that edges stand on.
        for (place, room) in ROOMS.iter().enumerate() {
            for import in room.may_import {
                let other = ROOMS.iter().position(|other| other.name == *import).unwrap();
                assert!(other < place, "{} imports {import}", room.name);
                assert!(!room.pure || ROOMS[other].pure, "{} is pure, {import} is not", room.name);
            }
        }
    }
}
