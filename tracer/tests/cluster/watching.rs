//! The room `cluster` against the scripted server: what it tells of a real cluster's recorded changes, and what
//! becomes of it when the server fails.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use expect_test::expect;
use serde_json::{Value, json};
use tempfile::TempDir;
use tracer::cluster::{Access, Cluster, ClusterError, First, Remark, Scope, Settings, Update};
use tracer::codec::Step;
use tracer::codec::watch::{Change, Reader};
use tracer::model::{
    ClusterEvent, EndpointChange, Event, EventKind, LossSource, MonoNs, PodChange, RolloutChange,
};
use tracer::sys::stop::Stop;

use crate::apiserver::play::Played;
use crate::apiserver::{Fault, Options, Server, Tls, Verb};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server, what watches it, and what was told.
pub(crate) struct Watched {
    pub(crate) cluster: Cluster,
    pub(crate) first: First,
    pub(crate) told: Vec<Update>,
    _folder: TempDir,
}

fn settings(server: &Server, folder: &Path) -> Settings {
    Settings {
        access: Access { kubeconfig: Some(server.kubeconfig(folder)), context: None },
        scope: Scope::Service { namespace: "default".to_owned(), name: "web".to_owned() },
        renew: Duration::from_secs(60),
        patience: Duration::from_secs(2),
    }
}

pub(crate) fn watch_with(
    server: &Server,
    change: impl FnOnce(&mut Settings),
) -> Result<Watched, ClusterError> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = settings(server, folder.path());
    change(&mut settings);
    let (cluster, first) = Cluster::watch(settings, &Stop::default(), |_| {})?;
    Ok(Watched { cluster, first, told: Vec::new(), _folder: folder })
}

pub(crate) fn watch(server: &Server) -> Watched {
    watch_with(server, |_| {}).unwrap_or_else(|error| panic!("{error}"))
}

impl Watched {
    /// Waits until something was told.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Update) -> bool) {
        let begun = Instant::now();
        loop {
            while let Some(update) = self.cluster.next() {
                let is_it = holds(&update);
                self.told.push(update);
                if is_it {
                    return;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "not told: {what}; {:#?}", self.told);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn until_pod(&mut self, name: &str, wanted: fn(PodChange) -> bool) {
        self.until(name, |update| match update {
            Update::Event(event) => matches!(
                &event.kind,
                EventKind::Cluster { change: ClusterEvent::Pod { name: it, change, .. }, .. }
                    if it == name && wanted(*change)
            ),
            _ => false,
        });
    }

    pub(crate) fn finish(mut self) -> Vec<Update> {
        self.told.extend(self.cluster.finish());
        self.told
    }
}

pub(crate) fn is_deletion(update: &Update, of: &str) -> bool {
    match update {
        Update::Event(event) => matches!(
            &event.kind,
            EventKind::Cluster {
                change: ClusterEvent::Pod { name, change: PodChange::Deleted, .. },
                ..
            } if name == of
        ),
        _ => false,
    }
}

/// How often something was lost.
pub(crate) fn losses(told: &[Update]) -> usize {
    let lost = |update: &&Update| match update {
        Update::Event(event) => {
            matches!(event.kind, EventKind::Lost { source: LossSource::Cluster, .. })
        }
        _ => false,
    };
    told.iter().filter(lost).count()
}

pub(crate) fn notes(told: &[Update]) -> Vec<&str> {
    let mut notes = Vec::new();
    for update in told {
        if let Update::Note(note) = update {
            notes.push(note.as_str());
        }
    }
    notes
}

pub(crate) fn pod(name: &str, address: &str) -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [] },
        "status": { "podIP": address, "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

fn service() -> Value {
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": { "name": "web", "namespace": "default" },
        "spec": {
            "clusterIP": "10.96.0.10",
            "clusterIPs": ["10.96.0.10"],
            "selector": { "app": "web" },
            "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }],
        },
    })
}

fn slice(addresses: &[&str]) -> Value {
    let endpoints = addresses.iter().map(|address| {
        json!({ "addresses": [address], "conditions": { "ready": true, "serving": true } })
    });
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "labels": { "kubernetes.io/service-name": "web" },
        },
        "addressType": "IPv4",
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{ "port": 8080, "protocol": "TCP" }],
    })
}

fn server_with_a_service(options: Options) -> Server {
    let server = Server::with(options);
    server.apply(service());
    server.apply(slice(&["10.244.1.7"]));
    server.apply(pod("web-a", "10.244.1.7"));
    server
}

pub(crate) fn usual() -> Server {
    server_with_a_service(Options::default())
}

/// One recorded stream, event by event.
fn recorded(kind: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/kubernetes-1.36-readiness");
    let file = std::fs::File::open(format!("{folder}/watch-{kind}.json.zst")).expect("the file");
    let mut text = String::new();
    zstd::Decoder::new(file)
        .and_then(|mut decoder| decoder.read_to_string(&mut text))
        .expect("it unpacks");
    let values = serde_json::Deserializer::from_str(&text).into_iter();
    values.collect::<Result<_, _>>().expect("it is JSON")
}

fn version(event: &Value) -> u64 {
    let version = event["object"]["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).expect("every object has one")
}

/// A change in words, without its time.
fn words(change: &ClusterEvent) -> Option<String> {
    Some(match change {
        ClusterEvent::Pod { name, address, change, .. } => {
            let address = address.map_or("no address".to_owned(), |at| at.to_string());
            format!("pod {name} {address} {change:?}")
        }
        ClusterEvent::Endpoint { backend, change: EndpointChange::Removed, .. } => {
            format!("endpoint {backend} removed")
        }
        ClusterEvent::Endpoint { backend, change, .. } => format!("endpoint {backend} {change:?}"),
        ClusterEvent::Rollout { deployment, change } => format!("rollout {deployment} {change:?}"),
    })
}

/// What the files say, as `replay` reads them, each kind in its order.
fn replayed(kind: &str) -> Vec<String> {
    let mut reader = Reader::default();
    for event in recorded(kind) {
        reader.feed(format!("{event}\n").as_bytes());
    }
    reader.close();
    let mut said = Vec::new();
    loop {
        match reader.step() {
            Step::Item(told) => match told.change {
                Change::Cluster(change) => said.extend(words(&change)),
                // The file holds the slices of all Services of the namespace.
                Change::Endpoint(endpoint) if endpoint.service == "web" => {
                    let front = "10.96.0.10:80".parse().expect("an address");
                    said.extend(words(&endpoint.at(front)));
                }
                _ => {}
            },
            Step::More => unreachable!("all was fed"),
            Step::End => return said,
        }
    }
}

#[test]
fn the_recorded_streams_tell_the_same_as_their_files() {
    let server = Server::start();
    server.apply(service());
    let mut events: Vec<Value> =
        ["pods", "endpointslices", "deployments"].into_iter().flat_map(recorded).collect();
    // A list shows the state of one moment: that before the rollout's first change.
    events.sort_by_key(version);
    let first_change = events.iter().position(|event| event["type"] != "ADDED").expect("changes");
    let (there, changes) = events.split_at(first_change);
    for event in there {
        server.play(event);
    }
    let mut watched = watch(&server);
    // One after the other: each is told before the next, as the watches of several kinds are not ordered.
    for event in changes {
        server.play(event);
    }
    watched.until("the last pod's end", |update| match update {
        Update::Event(event) => matches!(
            &event.kind,
            EventKind::Cluster { change: ClusterEvent::Pod { name, change: PodChange::Deleted, .. }, .. }
                if name == "web-8d8f7c6cd-mmrls"
        ),
        _ => false,
    });
    watched.until_rollout_and_endpoint_end();
    let first = watched.first.clone();
    let told = watched.finish();
    let mut live: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let events = told.iter().filter_map(|update| match update {
        Update::Event(event) => Some(event.as_ref()),
        _ => None,
    });
    for event in first.events.iter().chain(events) {
        let EventKind::Cluster { change, since } = &event.kind else {
            panic!("nothing was lost: {event:?}");
        };
        assert!(*since <= event.time, "{event:?}");
        let kind = match change {
            ClusterEvent::Pod { .. } => "pods",
            ClusterEvent::Endpoint { .. } => "endpointslices",
            ClusterEvent::Rollout { .. } => "deployments",
        };
        live.entry(kind).or_default().extend(words(change));
    }
    for kind in ["pods", "endpointslices", "deployments"] {
        let (mut live, mut file) = (live.remove(kind).unwrap_or_default(), replayed(kind));
        // What was there at first is listed by name, and in the file in the order of its making.
        live.sort();
        file.sort();
        assert_eq!(live, file, "{kind}");
    }
    assert_eq!(notes(&told), Vec::<&str>::new());
}

impl Watched {
    #[track_caller]
    fn until_rollout_and_endpoint_end(&mut self) {
        let is_finished = |update: &Update| match update {
            Update::Event(event) => matches!(
                &event.kind,
                EventKind::Cluster {
                    change: ClusterEvent::Rollout { change: RolloutChange::Finished, .. },
                    ..
                }
            ),
            _ => false,
        };
        if !self.told.iter().any(is_finished) {
            self.until("the rollout's end", is_finished);
        }
        let is_removed = |update: &Update| match update {
            Update::Event(event) => matches!(
                &event.kind,
                EventKind::Cluster {
                    change: ClusterEvent::Endpoint { backend, change: EndpointChange::Removed, .. },
                    ..
                } if backend.to_string() == "10.244.2.7:8080"
            ),
            _ => false,
        };
        if !self.told.iter().any(is_removed) {
            self.until("the last endpoint's end", is_removed);
        }
    }
}

#[test]
fn what_is_there_is_told_first_with_the_addresses_to_trace() {
    let server = usual();
    let watched = watch(&server);
    let first = &watched.first;
    assert_eq!(first.addresses.services, ["10.96.0.10:80".parse().unwrap()]);
    assert_eq!(first.addresses.backends, ["10.244.1.7:8080".parse().unwrap()]);
    let told: Vec<String> = first.events.iter().filter_map(in_words).collect();
    expect![[r#"
        pod web-a 10.244.1.7 Added
        pod web-a 10.244.1.7 Ready
        endpoint 10.244.1.7:8080 Listed { ready: true, serving: true, terminating: false }"#]]
    .assert_eq(&told.join("\n"));
    // The clock of the server is this machine's own.
    let clock = first.notes.last().expect("a note on the clocks");
    assert!(clock.starts_with("the API server's clock less this node's is between -0."), "{clock}");
}

pub(crate) fn in_words(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::Cluster { change, .. } => words(change),
        _ => None,
    }
}

#[test]
fn the_addresses_follow_the_service_and_its_endpoints() {
    let server = usual();
    let mut watched = watch(&server);
    server.apply(slice(&["10.244.1.7", "10.244.2.9"]));
    watched.until("a new backend", |update| match update {
        Update::Addresses(new) => new.backends == ["10.244.2.9:8080".parse().unwrap()],
        _ => false,
    });
    server.edit("services", "default", "web", |service| {
        service["spec"]["ports"][0]["port"] = 81.into();
    });
    watched.until("a new address", |update| match update {
        Update::Addresses(new) => new.services == ["10.96.0.10:81".parse().unwrap()],
        _ => false,
    });
    assert_eq!(losses(&watched.finish()), 0);
}

#[test]
fn a_deletion_is_the_deletion_timestamp_less_the_grace_period() {
    let server = usual();
    let mut watched = watch(&server);
    let asked = jiff::Timestamp::now().as_second();
    server.edit("pods", "default", "web-a", |pod| {
        let due = jiff::Timestamp::from_second(asked + 30).expect("a time").to_string();
        pod["metadata"]["deletionTimestamp"] = due.into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    });
    watched
        .until_pod("web-a", |change| change == PodChange::Asked { grace: Duration::from_secs(30) });
    let Some(Update::Event(event)) = watched.told.last() else { panic!("an event was told") };
    let EventKind::Cluster { since, .. } = event.kind else { panic!("{event:?}") };
    let anchor = tracer::sys::clock::anchor();
    let second = 1_000_000_000;
    // Not before the second that it names, by more than the clocks' difference is known to; and no later than now.
    assert!(anchor.wall(since).0 >= asked * second - second, "{event:?}");
    assert!(anchor.wall(since).0 < (asked + 1) * second, "{event:?}");
    assert!(event.time <= anchor.mono, "{event:?}");
    server.remove("pods", "default", "web-a");
    watched.until_pod("web-a", |change| change == PodChange::Deleted);
}

#[track_caller]
fn refused(server: &Server) -> String {
    match watch_with(server, |_| {}) {
        Ok(_) => panic!("it is refused"),
        Err(error) => error.to_string().replace(&server.address().to_string(), "SERVER"),
    }
}

#[test]
fn what_keeps_a_cluster_from_being_watched_is_said_in_one_line() {
    let server = usual();
    server.deny(None, "services");
    expect![[r#"not allowed to list and watch services: bind the role of deploy/ for `record` to this account (services is forbidden: User "tester" cannot list resource "services" in API group "" in the namespace "default")"#]]
        .assert_eq(&refused(&server));
    let untrusted = server_with_a_service(Options { tls: Tls::Untrusted, ..Options::default() });
    let said = refused(&untrusted);
    assert!(said.starts_with("cannot reach the API server at https://SERVER/: "), "{said}");
    assert!(said.contains("invalid peer certificate"), "{said}");
    expect!["there is no Service web in the namespace default"]
        .assert_eq(&refused(&Server::start()));
    let headless = Server::start();
    let mut service = service();
    service["spec"]["clusterIP"] = "None".into();
    service["spec"]["clusterIPs"] = json!(["None"]);
    headless.apply(service);
    expect![
        "the Service web is headless: clients connect to pods themselves, so no entry is translated"
    ]
    .assert_eq(&refused(&headless));
}

#[test]
fn credentials_that_are_not_accepted_are_said_to_be_so() {
    let server =
        server_with_a_service(Options { token: Some("secret".to_owned()), ..Options::default() });
    assert_eq!(losses(&watch(&server).finish()), 0);
    let folder = tempfile::tempdir().expect("a folder");
    let config = std::fs::read_to_string(server.kubeconfig(folder.path())).expect("a file");
    let wrong = folder.path().join("wrong");
    std::fs::write(&wrong, config.replace("secret", "guess")).expect("a file");
    let refused = watch_with(&server, |settings| settings.access.kubeconfig = Some(wrong));
    let Err(error) = refused else { panic!("it is refused") };
    expect!["the API server does not accept this account's credentials (401): are they expired?"]
        .assert_eq(&error.to_string());
}

#[test]
fn over_tls_it_is_the_same() {
    let server = server_with_a_service(Options { tls: Tls::Trusted, ..Options::default() });
    let mut watched = watch(&server);
    server.apply(pod("web-b", "10.244.1.8"));
    watched.until_pod("web-b", |change| change == PodChange::Added);
    assert_eq!(losses(&watched.finish()), 0);
}

#[test]
fn a_rollout_begins_with_its_template_and_ends_as_kubectl_has_it() {
    let server = usual();
    let service = "10.96.0.10:80".parse().expect("an address");
    let played = Played::new(&server, "default", service, Vec::new());
    let mut watched = watch(&server);
    for change in [RolloutChange::Started, RolloutChange::Finished] {
        let deployment = "web".to_owned();
        let change = ClusterEvent::Rollout { deployment, change };
        let kind = EventKind::Cluster { change: change.clone(), since: MonoNs(0) };
        played.see(&Event { time: MonoNs(0), kind });
        watched.until("it", |update| match update {
            Update::Event(event) => {
                matches!(&event.kind, EventKind::Cluster { change: it, .. } if *it == change)
            }
            _ => false,
        });
    }
}

#[test]
fn a_remark_is_an_event_on_its_deployment() {
    let server = usual();
    let service = "10.96.0.10:80".parse().expect("an address");
    drop(Played::new(&server, "default", service, Vec::new()));
    let watched = watch(&server);
    let remark = |deployment: &str| Remark {
        deployment: deployment.to_owned(),
        reason: "StaleEntryReuse",
        is_warning: true,
        sentence: "All 51 late failures came from a reused source port.".to_owned(),
    };
    let voice = watched.cluster.voice();
    voice.say(remark("web")).unwrap_or_else(|error| panic!("{error}"));
    let events = server.objects("events");
    let [event] = events.as_slice() else { panic!("{events:?}") };
    let deployment = &server.objects("deployments")[0];
    assert_eq!(event["involvedObject"]["uid"], deployment["metadata"]["uid"]);
    let fields = ["type", "reason", "message"].map(|field| event[field].as_str().unwrap());
    assert_eq!(
        fields,
        ["Warning", "StaleEntryReuse", "All 51 late failures came from a reused source port."]
    );
    let said = voice.say(remark("shop/web")).unwrap_err().to_string();
    expect!["the Deployment shop/web is gone"].assert_eq(&said);
    server.deny(Some(Verb::Create), "events");
    let said = voice.say(remark("web")).unwrap_err().to_string();
    expect!["not allowed to create events: bind the role of deploy/ for `monitor` to this account"]
        .assert_eq(&said);
}

#[test]
fn all_services_of_some_namespaces_can_be_watched() {
    let server = Server::start();
    for (nth, namespace) in ["shop", "bank", "other"].into_iter().enumerate() {
        let address = format!("10.96.0.{}:80", 10 + nth).parse().expect("an address");
        drop(Played::new(&server, namespace, address, Vec::new()));
    }
    let namespaces = vec!["shop".to_owned(), "bank".to_owned()];
    let mut watched =
        watch_with(&server, |settings| settings.scope = Scope::Namespaces(namespaces))
            .unwrap_or_else(|error| panic!("{error}"));
    let mut services = watched.first.addresses.services.clone();
    services.sort();
    assert_eq!(services, ["10.96.0.10:80", "10.96.0.11:80"].map(|it| it.parse().unwrap()));
    server.until("all is watched", |server| server.open_watches() == 10);
    // A list of one namespace tells nothing of the other.
    let pod = |name: &str, namespace: &str| {
        let mut pod = pod(name, "10.244.1.7");
        pod["metadata"]["namespace"] = namespace.into();
        pod
    };
    server.apply(pod("a", "shop"));
    watched.until_pod("shop/a", |change| change == PodChange::Added);
    server.fault(Verb::Watch, "pods", Fault::Gone, 2);
    server.until("both are listed anew", |server| server.count(Verb::List, "pods") == 4);
    server.apply(pod("b", "bank"));
    watched.until_pod("bank/b", |change| change == PodChange::Added);
    let told = watched.finish();
    assert!(!told.iter().any(|update| is_deletion(update, "shop/a")), "{told:#?}");
    assert_eq!(losses(&told), 2);
}
