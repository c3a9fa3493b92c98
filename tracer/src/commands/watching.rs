//! What commands that watch a cluster share: its options, and the way of its updates into pipeline and filter.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::units;
use crate::cli::note;
use crate::cluster::{Access, Cluster, Scope, Settings, Update};
use crate::kernel::{Filter, KernelError};
use crate::model::Event;

/// How a cluster is reached.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Reach {
    /// The kubeconfig [default: as kubectl finds it, KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context [default: the current one; in a pod its service account]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// How a cluster is reached and watched.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    #[command(flatten)]
    reach: Reach,

    /// How long a watch of the API lasts before it is renewed; a server that is silent for longer counts as stalled
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = units::positive)]
    watch_renewal: Duration,

    /// How long the API server may take for a list
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::positive)]
    api_timeout: Duration,
}

impl Reach {
    /// The way to it.
    pub fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

impl Options {
    /// How to watch this much of the cluster.
    pub fn settings(&self, scope: Scope) -> Settings {
        Settings {
            access: self.reach.access(),
            scope,
            renew: self.watch_renewal,
            patience: self.api_timeout,
        }
    }
}

/// Takes what the cluster has told since the last time.
///
/// # Errors
/// If the filter can't be added to.
pub fn take(
    cluster: &Cluster,
    filter: &mut Filter,
    sink: &mut dyn FnMut(Event),
) -> Result<(), KernelError> {
    while let Some(update) = cluster.next() {
        apply(update, filter, sink)?;
    }
    Ok(())
}

/// One update to where it belongs.
///
/// # Errors
/// If the filter can't be added to.
pub fn apply(
    update: Update,
    filter: &mut Filter,
    sink: &mut dyn FnMut(Event),
) -> Result<(), KernelError> {
    match update {
        Update::Event(event) => sink(*event),
        Update::Addresses(addresses) => {
            filter.watch(&addresses.services)?;
            filter.expect(&addresses.backends)?;
        }
        Update::Note(text) => note(format_args!("{text}")),
    }
    Ok(())
}
