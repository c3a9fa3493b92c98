//! What a file is, is told by its first bytes: no two kinds may claim the same.

use std::path::Path;
use std::sync::LazyLock;

use expect_test::expect;
use proptest::prelude::*;

use super::{conntrack, pcap, requests, trace, watch};

/// The kinds that claim a file that begins with these bytes.
fn claims(start: &[u8]) -> Vec<&'static str> {
    let kinds = [
        ("trace", trace::is_trace(start)),
        ("capture", pcap::is_capture(start)),
        ("conntrack", conntrack::looks_like(start)),
        ("watch", watch::looks_like(start)),
        ("requests", requests::looks_like(start)),
    ];
    kinds.into_iter().filter(|(_, claims)| *claims).map(|(kind, _)| kind).collect()
}

/// The first bytes of each fixture, by name; what is compressed is opened.
fn fixtures() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut folders = vec![root];
    let mut fixtures = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let mut bytes = std::fs::read(&path).unwrap();
            if name.ends_with(".zst") {
                bytes = zstd::decode_all(&bytes[..]).unwrap();
            }
            bytes.truncate(4096);
            fixtures.push((name, bytes));
        }
    }
    fixtures.sort();
    fixtures
}

#[test]
fn each_file_is_of_one_kind_or_none() {
    let mut told = String::new();
    for (name, start) in fixtures() {
        let claims = claims(&start);
        assert!(claims.len() <= 1, "{name} is claimed by {claims:?}");
        told += &format!("{name}: {}\n", claims.first().unwrap_or(&"nothing"));
    }
    expect![[r#"
        README.md: nothing
        any-sll-pcap.tshark.txt: nothing
        any-sll.pcap: capture
        any-sll2-pcap.tshark.txt: nothing
        any-sll2.pcap: capture
        ethernet-nano-short.pcap: capture
        ethernet-pcap.tshark.txt: nothing
        ethernet.pcap: capture
        merged-pcapng.tshark.txt: nothing
        merged.pcapng: capture
        version-1.trace: trace
    "#]]
    .assert_eq(&told);
}

#[test]
fn other_texts_are_nothing() {
    for text in [
        "",
        "\n\n",
        "{}",
        "[]",
        "a,b,c\n1,2,3\n",
        "{\"a\":1}\n",
        "<html><body>flow</body></html>",
        "18:35:32.316639 IP 192.0.2.4.7777 > 198.51.100.254.80: Flags [S], seq 887387349\n",
        "root:x:0:0:root:/:/bin/sh\n",
    ] {
        assert!(claims(text.as_bytes()).is_empty(), "{text}: {:?}", claims(text.as_bytes()));
    }
}

proptest! {
    #[test]
    fn a_damaged_file_is_never_two(
        which in any::<proptest::sample::Index>(),
        flips in proptest::collection::vec((0..4096_usize, 0..8_u8), 0..4),
        cut in 0..4096_usize,
    ) {
        static FIXTURES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(fixtures);
        let (name, mut start) = which.get(&FIXTURES).clone();
        for (at, bit) in flips {
            if let Some(byte) = start.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        start.truncate(cut);
        prop_assert!(claims(&start).len() <= 1, "{name}: {:?}", claims(&start));
    }
}
