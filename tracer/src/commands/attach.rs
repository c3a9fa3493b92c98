//! `tracer attach`: runs the tracer on a cluster's nodes, streams their traces here and says the verdict. What it
//! makes, it removes.

mod merge;
mod plan;
mod script;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use futures_util::future::join_all;

use super::units::{self, ServiceName};
use super::{judging, watching};
use crate::cli::{Exit, note};
use crate::cluster::node_pods::{Followed, Made, Node, NodePods, PodError, remove_now};
use crate::files::{self, Existing, TraceReader};
use crate::pipeline;
use crate::sys::{signals, stop::Stop};
use script::Script;

/// Options of `tracer attach`
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("where").required(true).args(["node", "pod", "all_nodes"])))]
pub struct Options {
    /// The node to trace: the one that the failing client is on
    #[arg(value_name = "NODE")]
    node: Option<String>,

    /// Trace the node that this pod, the client, is on
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = units::named)]
    pod: Option<(String, String)>,

    /// Trace every node, and judge their traces as one
    #[arg(long)]
    all_nodes: bool,

    /// Record the trace to this file, for `tracer replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// The Service to trace, as in `tracer record`
    #[arg(long, value_name = "SERVICE", value_parser = units::service)]
    service: ServiceName,

    /// How long to trace [default: until Ctrl-C; with --load as long as that takes]
    #[arg(long, value_name = "DURATION", value_parser = units::positive)]
    duration: Option<Duration>,

    /// Restart this Deployment, as `kubectl rollout restart` does, 5 s after tracing (or --load) began
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    roll: Option<String>,

    /// Run the load generator in a pod on the traced node: 10 workers, a new connection for every request, for 170 s
    /// or --duration
    #[arg(long)]
    load: bool,

    /// The image that the pods run [default: tracer, and this version]
    #[arg(long, value_name = "NAME:TAG")]
    image: Option<String>,

    /// The namespace that pods are made in
    #[arg(long, value_name = "NAME", default_value = "tracer")]
    namespace: String,

    /// The account that the tracing pod watches the cluster with
    #[arg(long, value_name = "NAME", default_value = "tracer-record")]
    service_account: String,

    /// Give the tracing pod every right, for kernels before 5.11 [default: CAP_BPF and CAP_PERFMON]
    #[arg(long)]
    privileged: bool,

    /// How long a pod may take to start, its image to be pulled included
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = units::positive)]
    start_within: Duration,

    #[command(flatten)]
    access: watching::Reach,

    #[command(flatten)]
    judging: judging::Options,
}

/// Makes the pods, streams, removes them, and judges what came.
pub fn run(options: Options) -> anyhow::Result<Exit> {
    options.judging.check()?;
    let script = Script::of(&options)?;
    let existing = options.judging.existing();
    let wanted = options.record.as_deref();
    options.judging.check_apart(wanted)?;
    if let Some(path) = wanted {
        files::check(path, existing)?;
    }
    let made = Made::default();
    let stop = Stop::default();
    let (access, namespace) = (options.access.access(), options.namespace.clone());
    let in_a_hurry = (access.clone(), namespace.clone(), made.clone());
    signals::watch(&stop, move || {
        let (access, namespace, made) = in_a_hurry;
        remove_now(&access, &namespace, &made);
    })
    .context("catching signals")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let folder = tempfile::tempdir().context("making a folder for the traces")?;
    let traces = runtime.block_on(async {
        let pods = NodePods::connect(&access, &namespace, made.clone()).await?;
        let traced = trace(&options, &script, &pods, &stop, folder.path()).await;
        // Also after an error, and before it is said.
        for error in pods.remove_all().await {
            note(format_args!(
                "{error}; it ends by itself within a minute or two, and the next attach removes it"
            ));
        }
        traced
    })?;
    let path = match traces.as_slice() {
        [] => bail!("nothing was traced"),
        [one] => one.clone(),
        several => merge::merge(several, &folder.path().join("merged"))?,
    };
    let kept = wanted.map(|wanted| keep(&path, wanted, existing)).transpose();
    let mut reader = TraceReader::open(&path)?;
    let settings = options.judging.settings(reader.header())?;
    let timeline = pipeline::replay(&mut reader, &mut |_| {})?;
    let exit = options.judging.say(reader.header(), &timeline, &settings)?;
    kept.context("the verdict is of the whole run, but the trace file is not")?;
    Ok(exit)
}

/// Copies the trace to where it is wanted.
fn keep(from: &Path, to: &Path, existing: Existing) -> anyhow::Result<()> {
    let mut source = File::open(from).with_context(|| format!("opening {}", from.display()))?;
    let mut target = files::create(to, existing)?;
    io::copy(&mut source, &mut target).with_context(|| format!("writing {}", to.display()))?;
    target.sync_all().or_else(|error| match error.kind() {
        // A pipe or a device has no disk to wait for (fsync(2): EINVAL).
        io::ErrorKind::InvalidInput => Ok(()),
        _ => Err(error).with_context(|| format!("writing {}", to.display())),
    })
}

/// Everything that needs the API: the traces that came, one a node.
async fn trace(
    options: &Options,
    script: &Script<'_>,
    pods: &NodePods,
    stop: &Stop,
    folder: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    let nodes = nodes(options, pods).await?;
    script.check(pods).await?;
    for left in pods.sweep().await? {
        note(format_args!("removed the pod {left}, left over from an earlier run"));
    }
    let mut running = Vec::new();
    for node in &nodes {
        let name = pods.create(&plan::tracing(options, node)).await?;
        note(format_args!(
            "made the pod {name} on the node {}: {}",
            node.name,
            plan::rights(options)
        ));
        running.push((node, name));
    }
    for (_, name) in &running {
        unless(stop, pods.started(name, options.start_within)).await??;
    }
    let begun = script::Begun::new(nodes.len());
    let follow = async |index: usize| {
        let (node, name) = &running[index];
        let path = folder.join(format!("{index}.trace"));
        let followed = follow_into(pods, name, &path, stop, &|| begun.begin(index)).await;
        // One that ends ends all: the traces are judged together.
        stop.request();
        begun.begin(index);
        say(node, followed?)?;
        Ok::<_, anyhow::Error>(path)
    };
    let all = join_all((0..running.len()).map(follow));
    let (traces, played) = tokio::join!(all, script.play(pods, &nodes[0], stop, &begun));
    played?;
    // Of several nodes one may fail: then what the others told is not the whole.
    traces.into_iter().collect()
}

/// Says what is missing of a trace; an error if that is all of it.
fn say(node: &Node, followed: Followed) -> anyhow::Result<()> {
    if followed.breaks > 0 {
        let times = followed.breaks;
        note(format_args!("{}: the connection broke {times} times and was made again", node.name));
    }
    match followed.cut {
        Some(cut) if followed.bytes == 0 => Err(cut).with_context(|| node.name.clone()),
        Some(cut) => {
            note(format_args!("{}: the trace is cut short: {cut}", node.name));
            Ok(())
        }
        None => Ok(()),
    }
}

async fn follow_into(
    pods: &NodePods,
    name: &str,
    path: &Path,
    stop: &Stop,
    begin: &dyn Fn(),
) -> anyhow::Result<Followed> {
    let mut file = files::create(path, Existing::Keep)?;
    let mut take = |bytes: &[u8]| {
        begin();
        file.write_all(bytes)
    };
    let followed = pods.follow(name, stop, &mut take).await?;
    followed.with_context(|| format!("writing {}", path.display()))
}

/// The nodes to trace, one of each kernel.
async fn nodes(options: &Options, pods: &NodePods) -> Result<Vec<Node>, PodError> {
    if let Some((namespace, name)) = &options.pod {
        let node = pods.node_of(namespace, name).await?;
        note(format_args!("the pod {namespace}/{name} is on the node {}", node.name));
        return Ok(vec![node]);
    }
    if let Some(name) = &options.node {
        return Ok(vec![pods.node(name).await?]);
    }
    let mut nodes: Vec<Node> = Vec::new();
    for node in pods.nodes().await? {
        match nodes.iter().find(|other| other.boot == node.boot) {
            Some(other) => note(format_args!(
                "{} runs on the kernel of {}, whose tracer sees its packets too",
                node.name, other.name
            )),
            None => nodes.push(node),
        }
    }
    Ok(nodes)
}

/// What comes of it, unless someone asks to stop before.
async fn unless<T>(stop: &Stop, deed: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::select! {
        done = deed => Ok(done),
        () = script::stopped(stop) => bail!("interrupted before anything was traced"),
    }
}
