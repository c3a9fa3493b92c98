//! Event objects: a sentence on a Deployment, where `kubectl describe` and whoever collects Events finds it.

use std::sync::mpsc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, PostParams};

use super::api::causes;

/// The API server's limit for an Event's message (validation of core/v1 and events.k8s.io/v1).
const LONGEST: usize = 1024;
/// How long saying it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Who says it.
const COMPONENT: &str = "tracer";

/// A sentence on a Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The Deployment, as rollouts name it: with its namespace, unless that is `default`.
    pub deployment: String,
    /// A word, in upper camel case: what `kubectl` shows as the reason.
    pub reason: &'static str,
    /// Whether somebody should look at it.
    pub is_warning: bool,
    /// The sentence. What is longer than the API allows is cut.
    pub sentence: String,
}

/// Why it could not be said.
#[derive(Debug, thiserror::Error)]
pub enum RemarkError {
    /// RBAC.
    #[error("not allowed to {what}: bind the role of deploy/ for `monitor` to this account")]
    Forbidden {
        /// The deed.
        what: &'static str,
    },
    /// There is no such Deployment any more.
    #[error("the Deployment {name} is gone")]
    Gone {
        /// Its name.
        name: String,
    },
    /// The API server did not take it.
    #[error("an Event on {name} was not taken: {why}")]
    Refused {
        /// The Deployment.
        name: String,
        /// What happened.
        why: String,
    },
}

/// Says things through the API; can be handed to other threads.
#[derive(Clone)]
pub struct Voice {
    pub(super) client: Client,
    pub(super) runtime: tokio::runtime::Handle,
}

impl Voice {
    /// Makes an Event on the Deployment, and waits until it is there, ten seconds at most.
    ///
    /// # Errors
    /// [`RemarkError`].
    pub fn say(&self, remark: Remark) -> Result<(), RemarkError> {
        let (said, answer) = mpsc::sync_channel(1);
        let name = remark.deployment.clone();
        let client = self.client.clone();
        self.runtime.spawn(async move {
            let outcome = tokio::time::timeout(PATIENCE, say(client, &remark)).await;
            let _ = said.send(outcome);
        });
        let refused = |why: String| RemarkError::Refused { name: name.clone(), why };
        match answer.recv_timeout(PATIENCE + Duration::from_secs(1)) {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(refused(format!("no answer within {} s", PATIENCE.as_secs()))),
            Err(_) => Err(refused("the cluster is no longer watched".to_owned())),
        }
    }
}

async fn say(client: Client, remark: &Remark) -> Result<(), RemarkError> {
    let (namespace, name) =
        remark.deployment.split_once('/').unwrap_or(("default", &remark.deployment));
    let error = |what, error: kube::Error| match error {
        kube::Error::Api(status) if status.code == 403 => RemarkError::Forbidden { what },
        kube::Error::Api(status) if status.code == 404 => {
            RemarkError::Gone { name: remark.deployment.clone() }
        }
        other => RemarkError::Refused { name: remark.deployment.clone(), why: causes(&other) },
    };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    // What is about no uid, `kubectl describe` does not show.
    let deployment = deployments.get(name).await.map_err(|it| error("get the Deployment", it))?;
    let now = k8s_openapi::jiff::Timestamp::now();
    let event = Event {
        metadata: ObjectMeta {
            // As client-go's recorder names them: the object's name and a time.
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("apps/v1".to_owned()),
            kind: Some("Deployment".to_owned()),
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            uid: deployment.metadata.uid,
            resource_version: deployment.metadata.resource_version,
            field_path: None,
        },
        reason: Some(remark.reason.to_owned()),
        message: Some(shortened(&remark.sentence, LONGEST)),
        type_: Some(if remark.is_warning { "Warning" } else { "Normal" }.to_owned()),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    };
    let events: Api<Event> = Api::namespaced(client, namespace);
    events
        .create(&PostParams::default(), &event)
        .await
        .map_err(|it| error("create events", it))
        .map(drop)
}

/// At most so many bytes, cut between characters, with an ellipsis.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(shortened("short", 5), "short");
        assert_eq!(shortened("öööö", 7), "öö…");
        assert_eq!(shortened(&"ö".repeat(600), LONGEST).len(), 1023);
    }
}
