//! The scripted API server itself: that it speaks as kube's own client expects it of a real one.

use std::path::Path;

use expect_test::expect;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::apiserver::{Fault, Options, Server, Tls, Verb};

fn pod(name: &str) -> Value {
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [] },
    })
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// What a client says of a server.
fn with_client<T>(server: &Server, run: impl AsyncFnOnce(Client) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = server.kubeconfig(folder.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async { run(client(&kubeconfig).await).await })
}

#[test]
fn lists_come_in_pages_and_single_objects_by_name() {
    let server = Server::start();
    for name in ["a", "b", "c"] {
        server.apply(pod(name));
    }
    let names = with_client(&server, async |client| {
        let pods: Api<Pod> = Api::all(client);
        let first = pods.list(&ListParams::default().limit(2)).await.unwrap();
        let token = first.metadata.continue_.clone().unwrap();
        let rest = pods.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
        let selected = pods.list(&ListParams::default().fields("spec.nodeName=n2")).await.unwrap();
        assert_eq!(selected.items.len(), 0);
        let names = |list: kube::api::ObjectList<Pod>| {
            list.items.into_iter().map(|pod| pod.metadata.name.unwrap()).collect::<Vec<_>>()
        };
        (names(first), names(rest))
    });
    assert_eq!(names, (vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]));
}

#[test]
fn objects_are_made_changed_and_deleted_with_grace() {
    let server = Server::start();
    with_client(&server, async |client| {
        let pods: Api<Pod> = Api::namespaced(client, "shop");
        let pod: Pod = serde_json::from_value(pod("a")).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let again = pods.create(&PostParams::default(), &pod).await.unwrap_err();
        expect!["pods \"a\" already exists: AlreadyExists"].assert_eq(&words(&again));
        let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": "shop" } } }));
        pods.patch("a", &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(pods.get("a").await.unwrap().metadata.labels.unwrap()["app"], "shop");
        pods.delete("a", &Default::default()).await.unwrap();
        let left = pods.get("a").await.unwrap().metadata;
        assert_eq!(left.deletion_grace_period_seconds, Some(30));
        server.remove("pods", "shop", "a");
        expect!["pods \"a\" not found: NotFound"]
            .assert_eq(&words(&pods.get("a").await.unwrap_err()));
    });
}

fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{}: {}", status.message, status.reason),
        other => other.to_string(),
    }
}

#[test]
fn what_is_forbidden_is_said_in_the_words_of_rbac() {
    let server = Server::start();
    server.deny(Some(Verb::List), "pods");
    let said = with_client(&server, async |client| {
        let pods: Api<Pod> = Api::namespaced(client, "shop");
        words(&pods.list(&ListParams::default()).await.unwrap_err())
    });
    expect![[r#"pods is forbidden: User "tester" cannot list resource "pods" in API group "" in the namespace "shop": Forbidden"#]].assert_eq(&said);
}

#[test]
fn a_token_and_a_certificate_are_asked_for() {
    let options = |tls| Options { tls, token: Some("secret".to_owned()), ..Options::default() };
    let server = Server::with(options(Tls::Trusted));
    server.apply(pod("a"));
    let list = async |client| {
        let pods: Api<Pod> = Api::all(client);
        pods.list(&ListParams::default()).await.map(|list| list.items.len())
    };
    assert_eq!(with_client(&server, list).unwrap(), 1);
    let untrusted = Server::with(options(Tls::Untrusted));
    assert!(with_client(&untrusted, list).is_err());
    assert_eq!(untrusted.asked(), []);
}

/// What a watcher says: names, and what went wrong.
async fn watched(
    events: &mut (impl futures_util::Stream<Item = watcher::Result<watcher::Event<Pod>>> + Unpin),
) -> String {
    let name = |pod: Pod| pod.metadata.name.unwrap_or_default();
    match events.next().await {
        Some(Ok(watcher::Event::Init)) => "list".to_owned(),
        Some(Ok(watcher::Event::InitApply(pod))) => format!("there {}", name(pod)),
        Some(Ok(watcher::Event::InitDone)) => "listed".to_owned(),
        Some(Ok(watcher::Event::Apply(pod))) => format!("changed {}", name(pod)),
        Some(Ok(watcher::Event::Delete(pod))) => format!("deleted {}", name(pod)),
        Some(Err(_)) => "error".to_owned(),
        None => "end".to_owned(),
    }
}

/// A server with a pod, a fault in its first watch, and then another pod: all that a watcher says until it knows
/// of that.
fn through(fault: Option<Fault>) -> Vec<String> {
    let server = Server::start();
    server.apply(pod("a"));
    with_client(&server, async |client| {
        let events = watcher(Api::<Pod>::all(client), watcher::Config::default());
        let mut events = std::pin::pin!(events);
        let mut said = Vec::new();
        while said.last().is_none_or(|last| last != "listed") {
            said.push(watched(&mut events).await);
        }
        if let Some(fault) = fault {
            server.fault(Verb::Watch, "pods", fault, 1);
        }
        server.apply(pod("b"));
        while !said.last().is_some_and(|last| last.ends_with('b')) {
            said.push(watched(&mut events).await);
        }
        assert_eq!(server.faults_due(), 0);
        server.remove("pods", "shop", "a");
        while watched(&mut events).await != "deleted a" {}
        said
    })
}

#[test]
fn a_watch_tells_what_changes() {
    assert_eq!(through(None), ["list", "there a", "listed", "changed b"]);
}

#[test]
fn after_a_version_that_is_gone_all_is_listed_again() {
    assert_eq!(
        through(Some(Fault::Gone)),
        ["list", "there a", "listed", "error", "list", "there a", "there b"]
    );
}

#[test]
fn a_watch_that_breaks_goes_on_where_it_was() {
    for fault in [Fault::Disconnect, Fault::HalfLine, Fault::Garbage] {
        let said = through(Some(fault.clone()));
        assert_eq!(said.last().map(String::as_str), Some("changed b"), "{fault:?}: {said:?}");
    }
    assert_eq!(through(Some(Fault::End)), ["list", "there a", "listed", "changed b"]);
}
