use std::fmt::Write;
use std::time::Duration;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::model::{ClusterEvent, WallNs};

fn read(bytes: &[u8], chunk: usize) -> (Vec<Told>, Counts) {
    let mut reader = Reader::default();
    let mut chunks = bytes.chunks(chunk);
    let mut told = Vec::new();
    loop {
        match reader.step() {
            Step::Item(item) => told.push(item),
            Step::More => match chunks.next() {
                Some(chunk) => reader.feed(chunk),
                None => reader.close(),
            },
            Step::End => return (told, reader.counts().clone()),
        }
    }
}

/// `02:13:32..33`, with a dot for an end that nothing tells.
fn range(when: When) -> String {
    let time = |at: Option<WallNs>| {
        at.map_or(".".to_owned(), |at| {
            let second = at.0.div_euclid(1_000_000_000).rem_euclid(86_400);
            format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
        })
    };
    let (from, to) = (time(when.from), time(when.to));
    let shared = when.from.is_some() && when.to.is_some() && from[..6] == to[..6];
    format!("{from}..{}", if shared { &to[6..] } else { &to })
}

fn words(told: &[Told], counts: &Counts) -> String {
    let mut words = String::new();
    for Told { change, when, .. } in told {
        let change = match change {
            Change::Cluster(ClusterEvent::Pod { name, app, node, address, change }) => {
                let address = address.map_or("no address".to_owned(), |at| at.to_string());
                format!("pod {name} ({app} on {node}, {address}) {change:?}")
            }
            Change::Cluster(ClusterEvent::Rollout { deployment, change }) => {
                format!("rollout {deployment} {change:?}")
            }
            Change::Cluster(other) => format!("{other:?}"),
            Change::Endpoint(Endpoint { service, port, backend, change }) => {
                let port = if port.is_empty() { port.clone() } else { format!(" port {port}") };
                format!("endpoint {service}{port} {backend} {change:?}")
            }
            Change::Service(Service { service, frontends }) => {
                format!("service {service} {frontends:?}")
            }
            Change::EarlierRollout { deployment, change } => {
                format!("earlier {deployment} {change:?}")
            }
            Change::Remark(Remark { about, reason, message }) => {
                format!("remark on {about}: {reason}: {message}")
            }
            Change::Gap { message } => format!("gap: {message}"),
        };
        writeln!(words, "{} {change}", range(*when)).unwrap();
    }
    for (reason, passed) in counts.unread.reasons() {
        writeln!(words, "unread: {reason} {}x, first in line {}", passed.count, passed.line)
            .unwrap();
    }
    words
}

fn check(json: &str, expected: Expect) {
    assert!(looks_like(json.as_bytes()));
    let (told, counts) = read(json.as_bytes(), usize::MAX);
    expected.assert_eq(&words(&told, &counts));
    for chunk in [1, 7, 64] {
        assert_eq!(
            read(json.as_bytes(), chunk),
            (told.clone(), counts.clone()),
            "in pieces of {chunk}"
        );
    }
}

fn recorded(kind: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kubernetes-1.36-readiness");
    let bytes = std::fs::read(format!("{folder}/watch-{kind}.json.zst")).unwrap();
    String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap()
}

/// As `kubectl get -w -o json` prints it without `--output-watch-events`: the objects alone, indented, and
/// without managedFields.
fn without_events(stream: &str) -> String {
    let mut plain = String::new();
    for line in stream.lines() {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        let object = &mut event["object"];
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        plain += &serde_json::to_string_pretty(object).unwrap();
        plain += "\n";
    }
    plain
}

#[test]
fn the_recorded_pods() {
    check(
        &recorded("pods"),
        expect![[r#"
            01:59:02..03 pod client ( on n1, 10.244.1.16) Added
            01:59:02..03 pod client ( on n1, 10.244.1.16) Ready
            02:13:18..19 pod web-8d8f7c6cd-28zvw (web on n2, 10.244.2.6) Added
            02:13:20..21 pod web-8d8f7c6cd-28zvw (web on n2, 10.244.2.6) Ready
            02:13:18..19 pod web-8d8f7c6cd-mmrls (web on n2, 10.244.2.7) Added
            02:13:20..21 pod web-8d8f7c6cd-mmrls (web on n2, 10.244.2.7) Ready
            02:13:18..19 pod web-8d8f7c6cd-p6pd2 (web on n1, 10.244.1.20) Added
            02:13:21..22 pod web-8d8f7c6cd-p6pd2 (web on n1, 10.244.1.20) Ready
            02:13:30..31 pod web-6d94446bdb-lfc7h (web on n1, 10.244.1.21) Added
            02:13:32..33 pod web-6d94446bdb-lfc7h (web on n1, 10.244.1.21) Ready
            02:13:32..33 pod web-8d8f7c6cd-p6pd2 (web on n1, 10.244.1.20) Asked { grace: 30s }
            02:13:32..33 pod web-8d8f7c6cd-p6pd2 (web on n1, 10.244.1.20) NotReady
            02:13:33..35 pod web-8d8f7c6cd-p6pd2 (web on n1, 10.244.1.20) Deleted
            02:13:33..34 pod web-6d94446bdb-wwgzt (web on n2, 10.244.2.8) Added
            02:13:35..36 pod web-6d94446bdb-wwgzt (web on n2, 10.244.2.8) Ready
            02:13:36..37 pod web-8d8f7c6cd-28zvw (web on n2, 10.244.2.6) Asked { grace: 30s }
            02:13:36..37 pod web-8d8f7c6cd-28zvw (web on n2, 10.244.2.6) NotReady
            02:13:36..37 pod web-6d94446bdb-ttqml (web on n1, 10.244.1.22) Added
            02:13:36..38 pod web-8d8f7c6cd-28zvw (web on n2, 10.244.2.6) Deleted
            02:13:38..39 pod web-6d94446bdb-ttqml (web on n1, 10.244.1.22) Ready
            02:13:38..39 pod web-8d8f7c6cd-mmrls (web on n2, 10.244.2.7) Asked { grace: 30s }
            02:13:38..39 pod web-8d8f7c6cd-mmrls (web on n2, 10.244.2.7) NotReady
            02:13:39..41 pod web-8d8f7c6cd-mmrls (web on n2, 10.244.2.7) Deleted
        "#]],
    );
}

#[test]
fn pods_tell_the_same_without_the_types_of_events() {
    let (typed, _) = read(recorded("pods").as_bytes(), 4096);
    let (plain, counts) = read(without_events(&recorded("pods")).as_bytes(), 4096);
    assert!(counts.unread.is_empty(), "{:?}", counts.unread);
    let changes = |told: &[Told]| told.iter().map(|told| told.change.clone()).collect::<Vec<_>>();
    assert_eq!(changes(&plain), changes(&typed));
    for (plain, typed) in plain.iter().zip(&typed) {
        assert!(plain.when.from <= typed.when.from, "{plain:?} {typed:?}");
        assert!(plain.when.to.is_none() || plain.when.to >= typed.when.to, "{plain:?} {typed:?}");
    }
}

#[test]
fn the_recorded_rollout() {
    check(
        &recorded("deployments"),
        expect![[r#"
        02:13:30..31 rollout web Started
        02:13:38..39 rollout web Finished
    "#]],
    );
    check(
        &without_events(&recorded("deployments")),
        expect![[r#"
        02:13:21..31 rollout web Started
        02:13:38..39 rollout web Finished
    "#]],
    );
    let (told, _) = read(recorded("deployments").as_bytes(), 4096);
    // `kubectl rollout status` was started at 1796091210.095 and returned at 1796091218.760.
    let finished = told.last().unwrap().when;
    let returned = WallNs(1_796_091_218_760_000_000);
    assert!(finished.from.unwrap() <= returned && returned < finished.to.unwrap());
}

#[test]
fn the_recorded_endpoints() {
    check(
        &recorded("endpointslices"),
        expect![[r#"
        01:55:49..02:11:54 endpoint kubernetes port https 172.18.0.1:6443 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:22 endpoint web 10.244.1.20:8080 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:22 endpoint web 10.244.2.6:8080 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:22 endpoint web 10.244.2.7:8080 Listed { ready: true, serving: true, terminating: false }
        02:13:30..31 endpoint web 10.244.1.21:8080 Listed { ready: false, serving: false, terminating: false }
        02:13:32..33 endpoint web 10.244.1.21:8080 Listed { ready: true, serving: true, terminating: false }
        02:13:32..33 endpoint web 10.244.1.20:8080 Listed { ready: false, serving: true, terminating: true }
        02:13:32..33 endpoint web 10.244.1.20:8080 Removed
        02:13:33..34 endpoint web 10.244.2.8:8080 Listed { ready: false, serving: false, terminating: false }
        02:13:35..36 endpoint web 10.244.2.8:8080 Listed { ready: true, serving: true, terminating: false }
        02:13:36..37 endpoint web 10.244.2.6:8080 Listed { ready: false, serving: true, terminating: true }
        02:13:36..37 endpoint web 10.244.2.6:8080 Removed
        02:13:36..37 endpoint web 10.244.1.22:8080 Listed { ready: false, serving: false, terminating: false }
        02:13:38..39 endpoint web 10.244.1.22:8080 Listed { ready: true, serving: true, terminating: false }
        02:13:38..39 endpoint web 10.244.2.7:8080 Listed { ready: false, serving: true, terminating: true }
        02:13:38..39 endpoint web 10.244.2.7:8080 Removed
    "#]],
    );
}

#[test]
fn a_list_of_what_is_there_when_all_is_over() {
    // The last state of each object, as `kubectl get pods,endpointslices,deployments -o json` has them.
    let mut last = std::collections::BTreeMap::new();
    for kind in ["pods", "endpointslices", "deployments"] {
        for line in recorded(kind).lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            if event["type"] == "DELETED" {
                last.remove(&(kind, name));
            } else {
                last.insert((kind, name), event["object"].clone());
            }
        }
    }
    let items: Vec<_> = last.into_values().collect();
    let list =
        serde_json::json!({"apiVersion": "v1", "items": items, "kind": "List", "metadata": {}});
    check(
        &serde_json::to_string_pretty(&list).unwrap(),
        expect![[r#"
        01:55:49..02:11:54 endpoint kubernetes port https 172.18.0.1:6443 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:39 endpoint web 10.244.1.21:8080 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:39 endpoint web 10.244.2.8:8080 Listed { ready: true, serving: true, terminating: false }
        01:58:22..02:13:39 endpoint web 10.244.1.22:8080 Listed { ready: true, serving: true, terminating: false }
        01:59:02..03 pod client ( on n1, 10.244.1.16) Added
        01:59:02..03 pod client ( on n1, 10.244.1.16) Ready
        02:13:30..31 pod web-6d94446bdb-lfc7h (web on n1, 10.244.1.21) Added
        02:13:32..33 pod web-6d94446bdb-lfc7h (web on n1, 10.244.1.21) Ready
        02:13:36..37 pod web-6d94446bdb-ttqml (web on n1, 10.244.1.22) Added
        02:13:38..39 pod web-6d94446bdb-ttqml (web on n1, 10.244.1.22) Ready
        02:13:33..34 pod web-6d94446bdb-wwgzt (web on n2, 10.244.2.8) Added
        02:13:35..36 pod web-6d94446bdb-wwgzt (web on n2, 10.244.2.8) Ready
        02:13:38..39 earlier web Finished
    "#]],
    );
}

#[test]
fn services_replica_sets_events_and_what_is_not_known() {
    check(
        r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{},"items":[
{"metadata":{"name":"web","namespace":"shop","creationTimestamp":"2026-12-01T01:00:00Z"},"spec":{"clusterIP":"10.96.0.10","clusterIPs":["10.96.0.10","fd00::a"],"ports":[{"name":"http","port":80,"protocol":"TCP","targetPort":8080},{"name":"dns","port":53,"protocol":"UDP"}]}},
{"metadata":{"name":"headless","namespace":"shop"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}]}
{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web-1","creationTimestamp":"2026-12-01T01:00:00Z","annotations":{"deployment.kubernetes.io/revision":"1"},"ownerReferences":[{"kind":"Deployment","name":"web","controller":true}]}}
{"kind":"ReplicaSet","apiVersion":"apps/v1","metadata":{"name":"web-2","creationTimestamp":"2026-12-01T02:13:30Z","annotations":{"deployment.kubernetes.io/revision":"2"},"ownerReferences":[{"kind":"Deployment","name":"web","controller":true}]}}
{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"default"},"involvedObject":{"kind":"Pod","name":"web-1-a","namespace":"default"},"reason":"Killing","message":"Stopping container app","firstTimestamp":"2026-12-01T02:13:32Z","lastTimestamp":"2026-12-01T02:13:32Z","eventTime":null}
{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"f"},"regarding":{"kind":"Pod","name":"web-1-a"},"reason":"Killing","note":"Stopping","eventTime":"2026-12-01T02:13:32.250000Z"}
{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5"}}}
{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version: 1 (5)","code":410}}
{"kind":"ConfigMap","apiVersion":"v1"}
{"apiVersion":"v1"}
{"kind":"Pod","metadata":7}
{"type":"SOLD","object":{}}
E1201 02:13:40.0 reflector.go:1 Unable to connect to the server
"#,
        expect![[r#"
            01:00:00..01 service shop/web [("http", 10.96.0.10:80), ("http", [fd00::a]:80)]
            02:13:32..33 remark on Pod web-1-a: Killing: Stopping container app
            02:13:32..32 remark on Pod web-1-a: Killing: Stopping
            .... gap: too old resource version: 1 (5)
            02:13:30..31 earlier web Started
            unread: a Pod that is none 1x, first in line 12
            unread: a watch event of type SOLD 1x, first in line 13
            unread: an object without its kind 1x, first in line 11
            unread: objects of kind ConfigMap 1x, first in line 10
            unread: text between the objects 1x, first in line 14
        "#]],
    );
}

#[test]
fn what_holds_a_pod_back_leaves_the_time_of_its_end_open() {
    check(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"1","creationTimestamp":"2026-12-01T01:00:00Z","deletionTimestamp":"2026-12-01T02:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["x/y"]},"spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.9"}}
{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"1","creationTimestamp":"2026-12-01T01:00:00Z","deletionTimestamp":"2026-12-01T02:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["x/y"]},"spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.9"}}}
{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","uid":"2","creationTimestamp":"2026-12-01T01:00:00Z","deletionTimestamp":"2026-12-01T02:00:30Z","deletionGracePeriodSeconds":30,"labels":{"pod-template-hash":"77"},"ownerReferences":[{"kind":"ReplicaSet","name":"web-77","controller":true}]},"spec":{"nodeName":"n1"},"status":{"podIP":"10.0.0.10"}}}
"#,
        expect![[r#"
            01:00:00... pod a ( on n1, 10.0.0.9) Added
            01:00:00..02:00:01 pod a ( on n1, 10.0.0.9) Asked { grace: 0ns }
            01:00:00... pod a ( on n1, 10.0.0.9) Deleted
            01:00:00... pod b (web on n1, 10.0.0.10) Added
            02:00:00..01 pod b (web on n1, 10.0.0.10) Asked { grace: 30s }
            02:00:00... pod b (web on n1, 10.0.0.10) Deleted
        "#]],
    );
}

fn state() -> DeploymentState {
    DeploymentState {
        generation: 2,
        observed_generation: 2,
        wanted: Some(3),
        replicas: 3,
        updated: 3,
        available: 3,
        deadline_exceeded: false,
    }
}

#[test]
fn a_rollout_is_complete_when_kubectl_would_return() {
    use RolloutStatus::*;
    let says = |state: DeploymentState| state.rollout_status();
    assert_eq!(says(state()), Complete);
    assert_eq!(says(DeploymentState { observed_generation: 1, ..state() }), NotObserved);
    assert_eq!(says(DeploymentState { observed_generation: 3, ..state() }), Complete);
    assert_eq!(says(DeploymentState { deadline_exceeded: true, ..state() }), DeadlineExceeded);
    let unseen = DeploymentState { observed_generation: 1, deadline_exceeded: true, ..state() };
    assert_eq!(says(unseen), NotObserved);
    assert_eq!(says(DeploymentState { updated: 2, available: 2, ..state() }), NotUpdated);
    assert_eq!(
        says(DeploymentState { wanted: None, updated: 2, replicas: 2, available: 2, ..state() }),
        Complete
    );
    assert_eq!(says(DeploymentState { replicas: 4, available: 4, ..state() }), OldRemain);
    assert_eq!(says(DeploymentState { available: 2, ..state() }), NotAvailable);
    // Scaled down to nothing, it is complete at once.
    let nothing =
        DeploymentState { wanted: Some(0), replicas: 0, updated: 0, available: 0, ..state() };
    assert_eq!(says(nothing), Complete);
    // More updated than wanted, while it is scaled down: kubectl does not wait for that.
    assert_eq!(says(DeploymentState { wanted: Some(2), ..state() }), Complete);
}

fn deployment(generation: i64, template: u32, status: &str, update: &str) -> String {
    format!(
        r#"{{"kind":"Deployment","apiVersion":"apps/v1","metadata":{{"name":"web","uid":"1","generation":{generation},"creationTimestamp":"2026-12-01T01:00:00Z"}},"spec":{{"replicas":1,"template":{{"rev":{template}}}}},"status":{{{status},"conditions":[{{"type":"Progressing","status":"True","reason":"{}","lastUpdateTime":"2026-12-01T02:00:{update}Z"}}]}}}}
"#,
        if status.contains("\"replicas\":1") {
            "NewReplicaSetAvailable"
        } else {
            "ReplicaSetUpdated"
        }
    )
}

#[test]
fn scaling_and_a_lost_pod_are_no_rollout_and_a_second_change_is_another() {
    let complete = |observed| {
        format!(
            r#""observedGeneration":{observed},"replicas":1,"updatedReplicas":1,"availableReplicas":1"#
        )
    };
    let rolling = |observed| {
        format!(
            r#""observedGeneration":{observed},"replicas":2,"updatedReplicas":1,"availableReplicas":1"#
        )
    };
    let lost = r#""observedGeneration":2,"replicas":1,"updatedReplicas":1"#;
    let stream = [
        deployment(1, 1, &complete(1), "00"),
        // A generation without another template: scaled, or paused.
        deployment(2, 1, &complete(1), "00"),
        deployment(2, 1, &complete(2), "00"),
        deployment(2, 1, lost, "00"),
        deployment(2, 1, &complete(2), "00"),
        deployment(3, 2, &complete(2), "00"),
        deployment(3, 2, &rolling(3), "10"),
        deployment(4, 3, &rolling(3), "10"),
        deployment(4, 3, &rolling(4), "20"),
        deployment(4, 3, &complete(4), "30"),
    ];
    check(
        &stream.concat(),
        expect![[r#"
        02:00:00..11 rollout web Started
        02:00:10..21 rollout web Started
        02:00:30..31 rollout web Finished
    "#]],
    );
    // From the middle of a rollout on, and from a pod lost after one.
    check(
        &stream[6..].concat(),
        expect![[r#"
        01:00:00..02:00:11 rollout web Started
        02:00:10..21 rollout web Started
        02:00:30..31 rollout web Finished
    "#]],
    );
    check(&stream[3..5].concat(), expect![[""]]);
    // Changed, and nothing more told.
    check(
        &stream[4..6].concat(),
        expect![[r#"
        02:00:00... rollout web Started
    "#]],
    );
}

#[test]
fn a_range_is_widened_by_what_the_clocks_may_differ_and_closed_by_the_recording() {
    let second = Duration::from_secs(1);
    let (began, ended) = (WallNs(0), WallNs(100_000_000_000));
    let known = When { from: Some(WallNs(10_000_000_000)), to: Some(WallNs(11_000_000_000)) };
    assert_eq!(
        known.between(began, ended, second / 2),
        (WallNs(9_500_000_000), WallNs(11_500_000_000))
    );
    let open = When { to: None, ..known };
    assert_eq!(open.between(began, ended, second), (WallNs(9_000_000_000), ended));
    assert_eq!(When::default().between(began, ended, second), (began, ended));
    // Later than the recording: the range stays one.
    let (from, to) = open.between(began, WallNs(1), second);
    assert_eq!(from, to);
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-z0-9.:]{0,9}".prop_map(Into::into),
        prop_oneof![Just("2026-12-01T02:13:32Z"), Just("9999-12-31T23:59:59Z"), Just("True")]
            .prop_map(Into::into),
    ];
    let key = proptest::sample::select(
        &[
            "metadata",
            "status",
            "spec",
            "name",
            "uid",
            "labels",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "creationTimestamp",
            "conditions",
            "podIP",
            "endpoints",
            "template",
            "generation",
            "managedFields",
            "time",
            "ownerReferences",
        ][..],
    );
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            proptest::collection::btree_map(key.clone(), inner, 0..6).prop_map(|map| {
                map.into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn objects_of_any_shape_are_read_or_counted(
        values in proptest::collection::vec(value(), 1..6),
        kind in proptest::sample::select(&["Pod", "Deployment", "ReplicaSet", "EndpointSlice", "Service", "Event", "Status", "Node"][..]),
    ) {
        let mut stream = String::new();
        for mut value in values {
            if let Some(object) = value.as_object_mut() {
                object.insert("kind".to_owned(), kind.into());
            }
            writeln!(stream, "{value}").unwrap();
        }
        read(stream.as_bytes(), 64);
    }

}

proptest! {
    // A case reads 300 kB.
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn cuts_and_flips_are_counted(at in 0..20_000_usize, bit in 0..8_u8, cut in 0..20_000_usize, chunk in 1..5_000_usize) {
        for kind in ["pods", "endpointslices", "deployments"] {
            let mut bytes = recorded(kind).into_bytes();
            let whole = read(&bytes, usize::MAX).1.objects;
            let length = bytes.len();
            bytes[at % length] ^= 1 << bit;
            bytes.truncate(length - cut % length);
            let counts = read(&bytes, chunk).1;
            prop_assert!(counts.objects <= whole);
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            prop_assert!(counts.objects + counts.unread.total() + 2 >= lines, "{:?}", counts);
        }
    }
}
