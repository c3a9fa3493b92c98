//! What can go wrong with a pod, each in one line that says what would help.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, Pod};

/// What was asked of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A pod, made.
    Create {
        /// Where.
        namespace: String,
    },
    /// A pod, removed.
    Remove {
        /// Its name.
        pod: String,
    },
    /// A pod's program, followed.
    Exec {
        /// The pod's name.
        pod: String,
    },
    /// One thing, looked at.
    Look {
        /// What, with its name.
        what: String,
    },
    /// Things, listed.
    List {
        /// What.
        what: &'static str,
        /// Where, if not everywhere.
        namespace: Option<String>,
    },
    /// A Deployment, restarted.
    Roll {
        /// NAMESPACE/NAME.
        deployment: String,
    },
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Create { namespace } => write!(f, "create a pod in the namespace {namespace}"),
            Deed::Remove { pod } => write!(f, "remove the pod {pod}"),
            Deed::Exec { pod } => write!(f, "exec in the pod {pod}"),
            Deed::Look { what } => write!(f, "get {what}"),
            Deed::List { what, namespace: Some(namespace) } => {
                write!(f, "list {what} in the namespace {namespace}")
            }
            Deed::List { what, namespace: None } => write!(f, "list {what}"),
            Deed::Roll { deployment } => write!(f, "restart the Deployment {deployment}"),
        }
    }
}

impl Deed {
    /// The role of deploy/ that allows it.
    fn role(&self) -> &'static str {
        match self {
            Deed::Create { .. } | Deed::Remove { .. } | Deed::Exec { .. } => "tracer-attach",
            Deed::List { what: "pods", .. } => "tracer-attach",
            Deed::Look { .. } | Deed::List { .. } => "tracer-attach-look",
            Deed::Roll { .. } => "tracer-roll",
        }
    }
}

/// Why there is no pod, or it is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// RBAC.
    #[error("this account may not {deed}: bind it to the role {} of deploy/roles ({said})", deed.role())]
    Forbidden {
        /// The deed.
        deed: Deed,
        /// The server's own words.
        said: String,
    },
    /// Pod Security.
    #[error(
        "the namespace {namespace} does not admit a pod that traces (Pod Security): `kubectl apply -k deploy/roles` \
         makes one that does, or give another by --namespace ({said})"
    )]
    PodSecurity {
        /// The namespace.
        namespace: String,
        /// The server's own words.
        said: String,
    },
    /// There is no such namespace or account yet.
    #[error("{said}: `kubectl apply -k deploy/roles` makes what attach needs")]
    NotSetUp {
        /// The server's own words.
        said: String,
    },
    /// There is no such thing.
    #[error("{said}{hint}")]
    Unknown {
        /// The server's own words.
        said: String,
        /// What would help.
        hint: &'static str,
    },
    /// The credentials are not accepted.
    #[error("the API server does not accept this account's credentials (401): are they expired?")]
    Unauthorized,
    /// The node has no such image.
    #[error(
        "the node can't have the image {image}: load it (`cargo xtask image` makes it; kind load image-archive, ctr \
         -n k8s.io images import), or name one that the cluster can pull by --image ({said})"
    )]
    NoImage {
        /// The image.
        image: String,
        /// The kubelet's own words.
        said: String,
    },
    /// It could not be started.
    #[error("the pod {pod} does not start: {said}")]
    NotStarted {
        /// Its name.
        pod: String,
        /// The kubelet's own words.
        said: String,
    },
    /// It has not started for a long time.
    #[error(
        "the pod {pod} has not started within {} s: {said}; is the node ready? (--start-within allows more)",
        within.as_secs()
    )]
    Late {
        /// Its name.
        pod: String,
        /// How long was waited.
        within: Duration,
        /// What it waits for.
        said: String,
    },
    /// Its program ended with an error.
    #[error("on the node: {said}{}", if said.contains("CAP_") { "; --privileged gives the pod all" } else { "" })]
    Program {
        /// Its last line.
        said: String,
    },
    /// The Deployment is paused.
    #[error(
        "the Deployment {deployment} is paused: `kubectl rollout resume deployment` it, then it can be restarted"
    )]
    Paused {
        /// NAMESPACE/NAME.
        deployment: String,
    },
    /// The API server does not answer.
    #[error("the API server did not answer for {seconds} s when asked to {deed}")]
    Silent {
        /// The deed.
        deed: Deed,
        /// How long was waited.
        seconds: u64,
    },
    /// Anything else that the API says.
    #[error("cannot {deed}: {said}")]
    Api {
        /// The deed.
        deed: Deed,
        /// What happened.
        said: String,
    },
}

impl PodError {
    /// What an error of the API means for this deed.
    pub(super) fn of(deed: &Deed, error: kube::Error) -> PodError {
        let status = match error {
            kube::Error::Api(status) => status,
            other => {
                return PodError::Api {
                    deed: deed.clone(),
                    said: crate::cluster::api::causes(&other),
                };
            }
        };
        // One line, whatever the server says.
        let said = status.message.split_whitespace().collect::<Vec<_>>().join(" ");
        match (status.code, deed) {
            (401, _) => PodError::Unauthorized,
            (403, Deed::Create { namespace }) if said.contains("violates PodSecurity") => {
                PodError::PodSecurity { namespace: namespace.clone(), said }
            }
            (403 | 404, Deed::Create { .. })
                if said.contains("not found") && !said.contains("cannot create") =>
            {
                PodError::NotSetUp { said }
            }
            // A quota or a policy is no matter of roles.
            (403, _) if !said.contains(" cannot ") => PodError::Api { deed: deed.clone(), said },
            (403, _) => PodError::Forbidden { deed: deed.clone(), said },
            (404, _) => PodError::Unknown { said, hint: hint(deed) },
            _ => PodError::Api { deed: deed.clone(), said },
        }
    }
}

fn hint(deed: &Deed) -> &'static str {
    match deed {
        Deed::Look { what } if what.starts_with("the node") => "; `kubectl get nodes` lists them",
        Deed::Look { what } if what.starts_with("the pod") => {
            "; `kubectl get pods --all-namespaces` lists them"
        }
        _ => "",
    }
}

/// Why a container waits that will not start by waiting (pkg/kubelet/images/types.go, pkg/kubelet/kuberuntime).
const IMAGE: [&str; 5] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
];
const CONTAINER: [&str; 4] =
    ["CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"];

fn state(pod: &Pod) -> Option<&ContainerState> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.as_ref()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether its container runs or has run.
pub(super) fn has_started(name: &str, pod: &Pod) -> Result<bool, PodError> {
    if let Some(ended) = end(pod) {
        return ended.map(|()| true).map_err(|said| PodError::Program { said });
    }
    let Some(state) = state(pod) else { return Ok(false) };
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        let message = waiting.message.as_deref().unwrap_or("no more is said");
        let said = format!("{reason}: {message}");
        if IMAGE.contains(&reason) {
            let image =
                pod.spec.as_ref().and_then(|spec| spec.containers[..].first()?.image.clone());
            return Err(PodError::NoImage { image: image.unwrap_or_default(), said });
        }
        if CONTAINER.contains(&reason) {
            return Err(PodError::NotStarted { pod: name.to_owned(), said });
        }
    }
    Ok(state.running.is_some())
}

/// How it ended, if it has: well, or with these last words.
pub(super) fn end(pod: &Pod) -> Option<Result<(), String>> {
    if let Some(terminated) = state(pod).and_then(|state| state.terminated.as_ref()) {
        if terminated.exit_code == 0 {
            return Some(Ok(()));
        }
        let said = terminated.message.as_deref().and_then(last_line).map(str::to_owned);
        let reason = terminated.reason.as_deref().unwrap_or("it ended");
        return Some(Err(
            said.unwrap_or_else(|| format!("{reason}, exit status {}", terminated.exit_code))
        ));
    }
    let status = pod.status.as_ref()?;
    match phase(pod) {
        "Succeeded" => Some(Ok(())),
        // Not admitted by the kubelet, or evicted.
        "Failed" => {
            let reason = status.reason.as_deref().unwrap_or("the pod failed");
            Some(Err(match status.message.as_deref() {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_owned(),
            }))
        }
        _ => None,
    }
}

/// What a pod that has not started says of that.
pub(super) fn waits_for(pod: &Pod) -> String {
    let waiting = state(pod).and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.clone());
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let condition = conditions.into_iter().flatten().find_map(|condition| {
        (condition.status == "False").then(|| condition.message.clone()).flatten()
    });
    condition.or(reason).unwrap_or_else(|| "no kubelet has taken it up".to_owned())
}

/// The last thing that a program of ours said.
fn last_line(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev().filter_map(|line| line.strip_prefix("tracer: "));
    lines.find(|line| *line != crate::cluster::RECORDING_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(deed: &Deed, code: u16, message: &str) -> String {
        let mut status = kube::core::Status::failure(message, "reason").boxed();
        status.code = code;
        PodError::of(deed, kube::Error::Api(status)).to_string()
    }

    fn create() -> Deed {
        Deed::Create { namespace: "tracer".to_owned() }
    }

    #[test]
    fn each_refusal_says_what_would_help() {
        let said =
            "pods \"x\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces";
        assert!(of(&create(), 403, said).contains("does not admit a pod that traces"));
        let said = "namespaces \"tracer\" not found";
        assert!(of(&create(), 404, said).contains("kubectl apply -k deploy/roles"));
        let said = "pods \"x\" is forbidden: error looking up service account tracer/tracer-record: serviceaccount \
                    \"tracer-record\" not found";
        assert!(of(&create(), 403, said).contains("kubectl apply -k deploy/roles"));
        let said =
            "pods is forbidden: User \"me\" cannot create resource \"pods\" in API group \"\"";
        assert!(
            of(&create(), 403, said).contains("bind it to the role tracer-attach of deploy/roles")
        );
        let said = "pods \"x\" is forbidden: exceeded quota: small";
        assert_eq!(
            of(&create(), 403, said),
            "cannot create a pod in the namespace tracer: pods \"x\" is forbidden: exceeded quota: small"
        );
        let deed = Deed::Look { what: "the node worker-9".to_owned() };
        assert_eq!(
            of(&deed, 404, "nodes \"worker-9\" not found"),
            "nodes \"worker-9\" not found; `kubectl get nodes` lists them"
        );
    }

    #[test]
    fn the_last_words_of_a_program_are_its_own_last_line() {
        let log = format!(
            "tracer: tracing\ntracer: needs CAP_BPF\ntracer: {}\n",
            crate::cluster::RECORDING_FAILED
        );
        assert_eq!(last_line(&log), Some("needs CAP_BPF"));
        assert_eq!(last_line("no line of ours"), None);
    }
}
