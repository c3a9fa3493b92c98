//! The pods of a run.

use std::time::Duration;

use super::Options;
use crate::cluster::node_pods::{FOLDER, Node, PodPlan, Rights, Role};
use crate::commands::units::ServiceName;

/// Added to the time that a run takes before the kubelet ends a pod by itself.
const RESERVE: Duration = Duration::from_secs(600);

/// The image, with its tag.
fn image(options: &Options) -> String {
    let own = || format!("tracer:{}", env!("CARGO_PKG_VERSION"));
    options.image.clone().unwrap_or_else(own)
}

fn name(service: &ServiceName) -> String {
    match service {
        ServiceName::Address(address) => address.to_string(),
        ServiceName::Named { namespace, name } => format!("{namespace}/{name}"),
    }
}

/// The pod that traces a node.
pub(super) fn tracing(options: &Options, node: &Node) -> PodPlan {
    let rights = if options.privileged { Rights::Privileged } else { Rights::Named };
    let service = name(&options.service);
    let record = ["node", "run", FOLDER, "--", "--service", &service];
    // A Service by its address is traced without looking at the cluster.
    let by_name = matches!(options.service, ServiceName::Named { .. });
    PodPlan {
        role: Role::Trace(rights),
        node: node.name.clone(),
        image: image(options),
        arguments: record.map(str::to_owned).to_vec(),
        account: by_name.then(|| options.service_account.clone()),
        at_most: super::script::length(options)
            .map(|length| length + options.start_within + RESERVE),
    }
}

/// The pod that asks a Service.
pub(super) fn load(options: &Options, node: &Node, target: &str, length: Duration) -> PodPlan {
    let duration = format!("{}ms", length.as_millis());
    let load = ["load", target, "--mode", "fresh", "--workers", "10", "--timeout", "3s"];
    let load = load.into_iter().chain(["--duration", &duration]);
    PodPlan {
        role: Role::Load,
        node: node.name.clone(),
        image: image(options),
        arguments: load.map(str::to_owned).collect(),
        account: None,
        at_most: Some(length + options.start_within + RESERVE),
    }
}

/// What a tracing pod may do and see, in half a sentence.
pub(super) fn rights(options: &Options) -> &'static str {
    if options.privileged {
        "privileged, with the node's network (its conntrack timers)"
    } else {
        "CAP_BPF, CAP_PERFMON and the node's network (its conntrack timers)"
    }
}
