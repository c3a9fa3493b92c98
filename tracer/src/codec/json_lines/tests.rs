//! The lines of events of every kind.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};

use super::*;
use crate::codec::trace::samples;

fn check(wanted: &str, expected: Expect) {
    let header = samples::header();
    let mut out = Vec::new();
    for (seq, event) in samples::each_kind().iter().enumerate() {
        super::event(&header, Seq(seq as u64), event, &mut out);
    }
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    let line = text.lines().find(|line| line.contains(wanted)).expect("such an event");
    expected.assert_eq(line);
}

#[test]
fn a_packet_has_its_entry() {
    check(
        "\"remaining\":",
        expect![[
            r#"{"seq":2,"time":0.999999986,"wall_ns":1700000000999999986,"kind":"packet","hook":"net_dev_start_xmit","netns":4026532281,"netns_name":"client","ifindex":2,"src":"[fd00::5]:40002","dst":"10.96.0.1:80","tcp":{"flags":["syn"],"seq":4294967295,"ack":0},"entry":{"orig":{"src":"[fd00::5]:40002","dst":"10.96.0.1:80"},"reply":{"src":"10.96.0.1:80","dst":"[fd00::5]:40002"},"zone":3,"direction":"original","ctinfo":2,"status":32,"state":null,"life":"unconfirmed","remaining":1.0},"drop":null}"#
        ]],
    );
}

#[test]
fn an_icmp_error_says_whom_it_is_from() {
    check(
        "\"icmp\":",
        expect![[
            r#"{"seq":1,"time":0.999999993,"wall_ns":1700000000999999993,"kind":"packet","hook":"net_dev_start_xmit","netns":4026532281,"netns_name":"client","ifindex":2,"src":"[fd00::5]:40002","dst":"10.96.0.1:80","icmp":{"type":3,"code":1,"from":"fd00::5"},"entry":null,"drop":{"reason":2,"name":"NOT_SPECIFIED"}}"#
        ]],
    );
}

#[test]
fn a_failed_request_has_its_symptom() {
    check(
        "connect-timeout",
        expect![[
            r#"{"seq":62,"time":0.999999566,"wall_ns":1700000000999999566,"kind":"request-ended","request":9,"source":null,"target":"10.96.0.1:80","keep_alive":null,"outcome":"failed","symptom":"connect-timeout","errno":111,"status":503,"resolve":null,"unresolved":null,"connect":null,"received":187,"total":3.0,"pod":null}"#
        ]],
    );
}

#[test]
fn every_line_keeps_to_its_schema_and_every_kind_is_one_of_it() {
    let mut out = Vec::new();
    header(&samples::header(), &mut out);
    for (seq, event) in samples::each_kind().iter().enumerate() {
        super::event(&samples::header(), Seq(seq as u64), event, &mut out);
    }
    let text = String::from_utf8(out).expect("JSON is UTF-8");
    let described: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/events.schema.json")).expect("JSON");
    let schema = jsonschema::draft202012::new(&described).expect("it holds together");
    let mut kinds = BTreeSet::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("it is JSON");
        let errors: Vec<String> = schema.iter_errors(&line).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{line}: {errors:#?}");
        kinds.insert(line["kind"].as_str().expect("it has a kind").to_owned());
    }
    let described = described["oneOf"].as_array().expect("a list").iter();
    let described: BTreeSet<String> = described
        .filter_map(|kind| kind["$ref"].as_str()?.strip_prefix("#/$defs/"))
        .map(str::to_owned)
        .collect();
    assert_eq!(kinds, described);
}

#[test]
fn a_change_known_from_an_object_alone_has_its_earliest_moment() {
    check(
        "\"silent\"",
        expect![[
            r#"{"seq":13,"time":0.999999909,"wall_ns":1700000000999999909,"earliest":0.0,"kind":"pod","name":"web-a","app":"web","node":"node-1","address":"10.96.0.1","change":"silent","grace":null,"silent_since":-0.999999999}"#
        ]],
    );
}

#[test]
fn the_header_is_a_line_of_its_own() {
    let mut out = Vec::new();
    header(&samples::header(), &mut out);
    expect![[r#"
        {"kind":"header","schema":1,"tracer":"0.1.0","by":"lab","command":"tracer lab --quick","seed":7,"os":"6.18.0 x86_64","node":"node-1","hz":250,"wall_ns":1700000000000000000,"wall_error_ns":60,"services":["10.96.0.1:80"],"hooks":[{"hook":"kfree_skb","attached":false,"note":"no reasons on this kernel"}],"netns":[{"id":4026532281,"name":"client","role":"client"}],"sysctls":[{"netns":4026532281,"name":"net.ipv4.ip_local_port_range","value":"32768 60999"}],"notes":["timers were shortened"]}
    "#]].assert_eq(&String::from_utf8(out).expect("JSON is UTF-8"));
}
