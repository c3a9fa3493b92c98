//! What must hold of every parser (fuzz/src/targets.rs), tried for seconds: on each file of the corpus, and on what
//! comes of it by changes that a fixed seed decides. `cargo xtask fuzz` tries it for minutes, led by coverage.

#[path = "../../fuzz/src/targets.rs"]
#[expect(unreachable_pub, reason = "in fuzz/ it is a library")]
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How often each file is changed.
const CHANGES: usize = 150;

/// Numbers that parsers stumble over.
const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX];

fn corpus(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

/// Changes some of the bytes: flips, overwrites by a number, cuts, doubles or removes a piece, or takes one of another.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut ChaCha8Rng) {
    for _ in 0..random.random_range(1..=4) {
        let Some(last) = bytes.len().checked_sub(1) else { return };
        let at = random.random_range(0..=last);
        let end = random.random_range(at..=last.min(at + 64)) + 1;
        match random.random_range(0..6) {
            0 => bytes[at] ^= 1 << random.random_range(0..8),
            1 => {
                let number = NUMBERS[random.random_range(0..NUMBERS.len())].to_le_bytes();
                let length = (bytes.len() - at).min(1 << random.random_range(0..4));
                bytes[at..at + length].copy_from_slice(&number[..length]);
            }
            2 => bytes.truncate(at),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => drop(bytes.drain(at..end)),
            _ if other.is_empty() => {}
            _ => {
                let from = random.random_range(0..other.len());
                let to = (from + end - at).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
}

fn hold(name: &str) {
    let (_, target) =
        targets::TARGETS.into_iter().find(|(known, _)| *known == name).expect("a target");
    let files: Vec<Vec<u8>> =
        corpus(name).iter().map(|path| fs::read(path).expect("it can be read")).collect();
    assert!(!files.is_empty(), "no corpus for {name}");
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut tried = 0;
    let mut run = |bytes: &[u8]| {
        tried += 1;
        if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
            let place = std::env::temp_dir().join(format!("tracer-fuzz-{name}-{tried}"));
            fs::write(&place, bytes).expect("the finding can be kept");
            panic!(
                "{name}: {} does not hold; once mended, it belongs into the corpus",
                place.display()
            );
        }
    };
    run(&[]);
    for (nth, file) in files.iter().enumerate() {
        run(file);
        let other = &files[(nth + 1) % files.len()];
        for _ in 0..CHANGES {
            let mut bytes = file.clone();
            change(&mut bytes, other, &mut random);
            run(&bytes);
        }
    }
}

#[test]
fn every_target_has_its_test() {
    let names = targets::TARGETS.map(|(name, _)| name);
    assert_eq!(
        names,
        ["ring", "trace", "capture", "conntrack", "watch", "requests", "stamp", "units"]
    );
}

#[test]
fn ring_records() {
    hold("ring");
}

#[test]
fn trace_files() {
    hold("trace");
}

#[test]
fn captures() {
    hold("capture");
}

#[test]
fn conntrack_output() {
    hold("conntrack");
}

#[test]
fn watch_output() {
    hold("watch");
}

#[test]
fn request_logs() {
    hold("requests");
}

#[test]
fn time_stamps() {
    hold("stamp");
}

#[test]
fn values_on_the_command_line() {
    hold("units");
}
