//! What can't work is said in one line that says what would help, and nothing is left behind.

use std::sync::Arc;

use crate::apiserver::{Fault, Handled, Handler, Verb, status};
use crate::kubelet::Runs;
use crate::world::World;

const RUN: [&str; 5] = ["worker", "--service", "demo/web", "--duration", "1s"];

#[track_caller]
fn check(world: &World, arguments: &[&str], words: &[&str]) {
    let said = world.run(arguments);
    let refusal = said.refusal();
    for word in words {
        assert!(refusal.contains(word), "{word:?} is not in {refusal:?}");
    }
    world.nothing_is_left();
}

/// Answers each request to create a pod with this.
fn on_create(code: u16, reason: &'static str, message: &'static str) -> World {
    let handler: Handler = Arc::new(move |_, ask, request| {
        Box::pin(async move {
            match (ask.verb, ask.resource.as_str()) {
                (Verb::Create, "pods") => Handled::Answer(status(code, reason, message)),
                _ => Handled::Pass(request),
            }
        })
    });
    World::with(vec![handler])
}

#[test]
fn an_unknown_node_pod_service_or_deployment_is_named() {
    let world = World::new();
    let unknown = ["worker9", "--service", "demo/web"];
    check(&world, &unknown, &["nodes \"worker9\" not found", "kubectl get nodes"]);
    let unknown = ["--pod", "demo/nobody", "--service", "demo/web"];
    check(&world, &unknown, &["pods \"nobody\" not found", "kubectl get pods"]);
    let unknown = ["worker", "--service", "demo/api", "--load"];
    check(&world, &unknown, &["services \"api\" not found"]);
    let unknown = ["worker", "--service", "demo/web", "--roll", "api"];
    check(&world, &unknown, &["\"api\" not found"]);
    assert_eq!(world.server.count(Verb::Create, "pods"), 0);
}

#[test]
fn an_account_without_a_right_hears_which_role_has_it() {
    for (verb, resource, words) in [
        (Verb::Get, "nodes", ["get the node worker", "tracer-attach-look"]),
        (Verb::List, "pods", ["list pods in the namespace tracer", "tracer-attach of"]),
        (Verb::Create, "pods", ["create a pod in the namespace tracer", "tracer-attach of"]),
        (Verb::Get, "pods/exec", ["exec in the pod tracer-node-", "tracer-attach of"]),
    ] {
        let world = World::new();
        world.server.deny(Some(verb), resource);
        check(&world, &RUN, &words);
    }
    let world = World::new();
    world.server.deny(Some(Verb::Patch), "deployments");
    let roll = ["worker", "--service", "demo/web", "--duration", "9s", "--roll", "web"];
    check(&world, &roll, &["restart the Deployment demo/web", "tracer-roll of"]);
}

#[test]
fn a_namespace_that_is_missing_or_admits_no_such_pod_is_named() {
    let missing = on_create(404, "NotFound", "namespaces \"tracer\" not found");
    check(&missing, &RUN, &["namespaces \"tracer\" not found", "kubectl apply -k deploy/roles"]);
    let account = on_create(
        403,
        "Forbidden",
        "pods \"x\" is forbidden: error looking up service account tracer/tracer-record: serviceaccount \
         \"tracer-record\" not found",
    );
    check(&account, &RUN, &["serviceaccount \"tracer-record\" not found", "deploy/roles"]);
    let forbids = on_create(
        403,
        "Forbidden",
        "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)",
    );
    check(&forbids, &RUN, &["the namespace tracer does not admit", "Pod Security", "--namespace"]);
}

#[test]
fn an_image_that_the_node_cannot_have_is_named_with_what_helps() {
    let world = World::new();
    world.kubelet.runs("worker", Runs::NoImage);
    check(&world, &RUN, &["the image tracer:", "kind load image-archive", "--image", "not found"]);
}

#[test]
fn a_program_that_fails_on_the_node_is_quoted() {
    let world = World::new();
    world.kubelet.runs("worker", Runs::Fails("tracing needs CAP_BPF and CAP_PERFMON"));
    check(&world, &RUN, &["on the node: tracing needs CAP_BPF", "--privileged"]);
}

#[test]
fn a_pod_that_no_kubelet_takes_up_is_given_up() {
    let world = World::new();
    world.kubelet.runs("worker", Runs::Never);
    let run = ["worker", "--service", "demo/web", "--start-within", "1s"];
    check(&world, &run, &["has not started within 1 s", "is the node ready?"]);
}

/// The answer to the request is lost, and the pod is there all the same.
#[test]
fn a_pod_whose_making_was_not_answered_is_removed() {
    let lost: Handler = Arc::new(|shared, ask, request| {
        Box::pin(async move {
            if ask.verb != Verb::Create || ask.resource != "pods" {
                return Handled::Pass(request);
            }
            use http_body_util::BodyExt;
            let body = request.into_body().collect().await.expect("a body").to_bytes();
            let pod = serde_json::from_slice(&body).expect("a pod");
            shared.state().objects.apply(pod);
            shared.turn();
            Handled::Answer(Err(std::io::Error::other("the connection breaks")))
        })
    });
    let world = World::with(vec![lost]);
    check(&world, &RUN, &["cannot create a pod in the namespace tracer"]);
    assert_eq!(world.server.count(Verb::Delete, "pods"), 1);
}

#[test]
fn credentials_that_are_not_accepted_are_not_shown() {
    let world = World::new();
    let path = world.path("kubeconfig");
    let config = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, config.replace(crate::world::TOKEN, "another-token")).expect("written");
    let said = world.run(&RUN);
    assert!(said.refusal().contains("401"), "{}", said.stderr);
    assert!(!said.stderr.contains("another-token"), "{}", said.stderr);
}

#[test]
fn a_server_that_fails_while_pods_are_removed_is_told_and_the_next_run_removes_them() {
    let world = World::new();
    let failing = Fault::Status { code: 500, retry_after: None };
    world.server.fault(Verb::Delete, "pods", failing, 1);
    let said = world.run(&["worker", "--service", "demo/web", "--duration", "300ms"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("the next attach removes it"), "{}", said.stderr);
    let [left] = world.pods().try_into().expect("one pod is left");
    let said = world.run(&["worker", "--service", "demo/web", "--duration", "300ms"]);
    assert!(said.stderr.contains(&format!("removed the pod {left}, left over")), "{}", said.stderr);
    world.nothing_is_left();
}

#[test]
fn options_that_make_no_sense_are_refused_before_anything_is_asked() {
    let world = World::new();
    let file = world.path("not-a-trace");
    std::fs::write(&file, "text").expect("written");
    let taken = ["worker", "--service", "demo/web", "--record", &file, "--force"];
    check(&world, &taken, &["not-a-trace"]);
    let nameless = ["worker", "--service", "10.0.0.1:80", "--roll", "web"];
    check(&world, &nameless, &["--roll", "NAMESPACE/NAME"]);
    assert_eq!(world.server.asked().len(), 0);
}
