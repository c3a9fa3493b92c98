//! Sysctls of the network namespace that the calling thread is in (`/proc/sys/net` shows the reader's own).

use std::fs;
use std::io;
use std::path::PathBuf;

use super::netns::{Netns, NetnsError};
use crate::model::Sysctl;

/// The timer of a conntrack entry that has seen nothing but SYNs, in seconds.
pub const SYN_SENT_TIMEOUT: &str = "net.netfilter.nf_conntrack_tcp_timeout_syn_sent";

/// The range that `connect` takes source ports from.
pub const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";

/// Those of a node that a reader of a trace may need.
pub const OF_INTEREST: [&str; 15] = [
    SYN_SENT_TIMEOUT,
    "net.netfilter.nf_conntrack_tcp_timeout_syn_recv",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_fin_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_last_ack",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_close",
    "net.netfilter.nf_conntrack_tcp_timeout_max_retrans",
    "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.netfilter.nf_conntrack_tcp_loose",
    "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst",
    "net.netfilter.nf_conntrack_max",
    PORT_RANGE,
];

/// Why a sysctl could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// It could not be read.
    #[error("cannot read sysctl {name}")]
    Read {
        /// Its name, dotted.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be set.
    #[error("cannot set sysctl {name} to `{value}`")]
    Write {
        /// Its name, dotted.
        name: String,
        /// The value.
        value: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Its value, white space folded to one space.
///
/// # Errors
/// [`SysctlError::Read`]; the kind `NotFound` where this kernel has no such sysctl.
pub fn read(name: &str) -> Result<String, SysctlError> {
    let text = fs::read_to_string(path(name));
    let text = text.map_err(|source| SysctlError::Read { name: name.to_owned(), source })?;
    Ok(fold(&text))
}

/// Sets it.
///
/// # Errors
/// [`SysctlError::Write`].
pub fn write(name: &str, value: &str) -> Result<(), SysctlError> {
    fs::write(path(name), value).map_err(|source| SysctlError::Write {
        name: name.to_owned(),
        value: value.to_owned(),
        source,
    })
}

/// Those of a namespace that this kernel has, in the order of `names`.
///
/// # Errors
/// [`NetnsError`] if the namespace can't be entered; that of this thread needs no entering, which takes CAP_SYS_ADMIN.
pub fn values(netns: &Netns, names: &[&str]) -> Result<Vec<Sysctl>, NetnsError> {
    let values = || {
        let known = names.iter().filter_map(|name| Some((*name, read(name).ok()?)));
        known
            .map(|(name, value)| Sysctl { netns: netns.id(), name: name.to_owned(), value })
            .collect()
    };
    match Netns::current() {
        Ok(own) if own.id() == netns.id() => Ok(values()),
        _ => netns.run(values),
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name.replace('.', "/"))
}

fn fold(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tabs_and_line_ends_are_folded() {
        assert_eq!(fold("32768\t60999\n"), "32768 60999");
    }

    #[test]
    fn an_unknown_sysctl_is_named() {
        let error = read("net.ipv4.no_such_sysctl").expect_err("there is no such sysctl");
        assert_eq!(error.to_string(), "cannot read sysctl net.ipv4.no_such_sysctl");
    }
}
