//! The answers to all that is no watch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fault::Fault;
use super::objects::{Kind, now};
use super::request::{Ask, Verb};
use super::serve::{Request, Response, full, json_of, status};
use super::{Shared, watch};

/// Whether RBAC forbids it.
fn is_denied(shared: &Shared, verb: Verb, resource: &str, namespace: Option<&str>) -> bool {
    shared.state().denied.iter().any(|denied| {
        denied.verb.is_none_or(|of| of == verb)
            && denied.resource == resource
            && (namespace.is_none() || !denied.everywhere)
    })
}

/// The API server's own words for what is forbidden.
pub(super) fn refusal(shared: &Shared, ask: &Ask) -> Option<Response> {
    if !is_denied(shared, ask.verb, &ask.resource, ask.namespace.as_deref()) {
        return None;
    }
    let (plural, sub) = ask.resource.split_once('/').unwrap_or((&ask.resource, ""));
    let shown = if sub.is_empty() { plural.to_owned() } else { format!("{plural}/{sub}") };
    let name = ask.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let place = match &ask.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let message = format!(
        "{plural}{name} is forbidden: User \"tester\" cannot {} resource \"{shown}\" in API group \"{}\" {place}",
        ask.verb.name(),
        ask.group(),
    );
    Some(status(403, "Forbidden", &message))
}

/// The answer to a request that nobody took before.
pub(super) async fn answer(shared: &Arc<Shared>, ask: Ask, request: Request) -> Response {
    if ask.verb == Verb::Watch {
        return watch::start(shared, ask);
    }
    let fault = shared.state().take_fault(ask.verb, &ask.resource);
    let half = match fault {
        Some(Fault::Status { code, retry_after }) => return failed(code, retry_after),
        Some(Fault::Gone) => return failed(410, None),
        Some(Fault::Stall) => std::future::pending().await,
        Some(Fault::HalfLine | Fault::HalfLineAndEnd) => true,
        Some(Fault::Disconnect | Fault::End) => {
            return Err(std::io::Error::other("the connection breaks"));
        }
        Some(Fault::Garbage) => return full(200, &"no object".into()),
        None => false,
    };
    let response = match ask.verb {
        Verb::List => list(shared, &ask),
        Verb::Get => get(shared, &ask),
        Verb::Create => create(shared, &ask, json_of(request).await),
        Verb::Patch | Verb::Update => change(shared, &ask, json_of(request).await),
        Verb::Delete => delete(shared, &ask, json_of(request).await),
        Verb::Watch => unreachable!("answered above"),
    };
    if half { watch::halved(response?).await } else { response }
}

/// An answer that says that it went wrong.
pub(super) fn failed(code: u16, retry_after: Option<u64>) -> Response {
    let (reason, message) = match code {
        410 => ("Expired", "too old resource version: 1 (2)"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        403 => ("Forbidden", "it is forbidden"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        _ => ("InternalError", "Internal error occurred"),
    };
    let mut response = status(code, reason, message)?;
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    Ok(response)
}

fn unknown(ask: &Ask) -> Response {
    let name = ask.name.as_deref().unwrap_or_default();
    let plural = &ask.resource;
    let group = ask.group();
    let shown = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    status(404, "NotFound", &format!("{shown} \"{name}\" not found"))
}

fn kind(ask: &Ask) -> Option<&'static Kind> {
    let plural = ask.resource.split('/').next().unwrap_or_default();
    Kind::of_path(&ask.api_version, plural)
}

/// All objects that are asked for, in pages if they are asked for in pages. The items of a list do not name
/// their kind: the list does.
fn list(shared: &Shared, ask: &Ask) -> Response {
    let Some(kind) = kind(ask) else { return unknown(ask) };
    let state = shared.state();
    let items = state.objects.all(kind.resource).filter(|object| ask.wants(object));
    let mut items: Vec<Value> = items.cloned().collect();
    for item in &mut items {
        let fields = item.as_object_mut().expect("an object");
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let mut metadata = json!({ "resourceVersion": state.objects.version().to_string() });
    let from = ask.query.get("continue").and_then(|at| at.parse().ok()).unwrap_or(0_usize);
    let mut page: Vec<Value> = items.into_iter().skip(from).collect();
    let limit = ask.number("limit").filter(|limit| *limit > 0);
    if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok())
        && page.len() > limit
    {
        metadata["remainingItemCount"] = (page.len() - limit).into();
        metadata["continue"] = (from + limit).to_string().into();
        page.truncate(limit);
    }
    let list = json!({
        "kind": format!("{}List", kind.kind),
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "items": page,
    });
    full(200, &list)
}

fn get(shared: &Shared, ask: &Ask) -> Response {
    let state = shared.state();
    let Some(kind) = kind(ask) else { return unknown(ask) };
    match state.objects.all(kind.resource).find(|object| ask.wants(object)) {
        Some(object) => full(200, object),
        None => unknown(ask),
    }
}

fn create(shared: &Shared, ask: &Ask, mut object: Value) -> Response {
    if ask.resource == "selfsubjectaccessreviews" {
        return review(shared, object);
    }
    let Some(kind) = kind(ask) else { return unknown(ask) };
    if !object.is_object() {
        return status(400, "BadRequest", "the body of the request is no object");
    }
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version.into();
    if let Some(namespace) = &ask.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut state = shared.state();
    if !name.is_empty() && state.objects.get(kind.resource, &namespace, &name).is_some() {
        let message = format!("{} \"{name}\" already exists", kind.resource);
        return status(409, "AlreadyExists", &message);
    }
    if ask.query.contains_key("dryRun") {
        return full(201, &object);
    }
    let version = state.objects.apply(object).to_string();
    let made = state.objects.all(kind.resource);
    let made =
        made.into_iter().find(|made| made["metadata"]["resourceVersion"] == version.as_str());
    let response = full(201, made.expect("made just now"));
    drop(state);
    shared.turn();
    response
}

/// Whether the account may do what it asks about.
fn review(shared: &Shared, mut review: Value) -> Response {
    let asked = review["spec"]["resourceAttributes"].clone();
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let mut resource = text("resource");
    if !text("subresource").is_empty() {
        resource = format!("{resource}/{}", text("subresource"));
    }
    let verbs =
        [Verb::Get, Verb::List, Verb::Watch, Verb::Create, Verb::Patch, Verb::Update, Verb::Delete];
    let verb = verbs.into_iter().find(|verb| verb.name() == text("verb"));
    let namespace = Some(text("namespace")).filter(|namespace| !namespace.is_empty());
    let is_denied = |verb| is_denied(shared, verb, &resource, namespace.as_deref());
    let allowed = verb.is_some_and(|verb| !is_denied(verb));
    review["status"] = json!({ "allowed": allowed });
    full(201, &review)
}

/// A patch; arrays are replaced, also where a strategic one would merge them.
fn change(shared: &Shared, ask: &Ask, patch: Value) -> Response {
    let Some(kind) = kind(ask) else { return unknown(ask) };
    let mut state = shared.state();
    let found = state.objects.all(kind.resource).find(|object| ask.wants(object)).cloned();
    let Some(before) = found else { return unknown(ask) };
    let mut object = if ask.verb == Verb::Patch { before.clone() } else { patch.clone() };
    if ask.verb == Verb::Patch {
        merge(&mut object, &patch);
    }
    if object["spec"] != before["spec"] {
        let generation = before["metadata"]["generation"].as_i64().unwrap_or(1);
        object["metadata"]["generation"] = (generation + 1).into();
    }
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version.into();
    if ask.query.contains_key("dryRun") {
        return full(200, &object);
    }
    state.objects.apply(object.clone());
    let namespace = before["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = before["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let response =
        full(200, state.objects.get(kind.resource, &namespace, &name).unwrap_or(&object));
    drop(state);
    shared.turn();
    response
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            object.as_object_mut().expect("made one above").remove(key);
        } else {
            merge(&mut object[key], value);
        }
    }
}

/// A pod that runs somewhere goes when its kubelet says so; all else, and without a grace period, at once.
fn delete(shared: &Shared, ask: &Ask, options: Value) -> Response {
    let Some(kind) = kind(ask) else { return unknown(ask) };
    let mut state = shared.state();
    let all = state.objects.all(kind.resource).filter(|object| ask.wants(object));
    let all: Vec<Value> = all.cloned().collect();
    if ask.name.is_some() && all.is_empty() {
        return unknown(ask);
    }
    let asked = options["gracePeriodSeconds"].as_i64();
    let asked = asked.or(ask.number("gracePeriodSeconds").and_then(|grace| grace.try_into().ok()));
    let mut last = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
    for mut object in all {
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = asked.unwrap_or(own);
        let lives = kind.kind == "Pod" && object["spec"]["nodeName"].is_string() && grace > 0;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        if !lives {
            state.objects.remove(kind.resource, &namespace, &name);
        } else if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = now(grace).into();
            object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            state.objects.apply(object.clone());
        }
        last = object;
    }
    drop(state);
    shared.turn();
    full(200, &last)
}
