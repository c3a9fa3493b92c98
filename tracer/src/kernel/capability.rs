//! What this process may do.

use std::fmt;
use std::fs;
use std::io;

/// A capability that something here needs (include/uapi/linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// Network devices, rules, conntrack.
    NetAdmin,
    /// Namespaces; before Linux 5.8 also BPF.
    SysAdmin,
    /// Kernel memory through tracing programs, since Linux 5.8.
    Perfmon,
    /// Loading BPF programs, since Linux 5.8.
    Bpf,
}

impl Capability {
    /// Every one.
    pub const ALL: [Capability; 4] =
        [Capability::NetAdmin, Capability::SysAdmin, Capability::Perfmon, Capability::Bpf];

    /// Its number.
    fn bit(self) -> u32 {
        match self {
            Capability::NetAdmin => 12,
            Capability::SysAdmin => 21,
            Capability::Perfmon => 38,
            Capability::Bpf => 39,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Perfmon => "CAP_PERFMON",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The capabilities in effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Those of this process.
    ///
    /// # Errors
    /// If /proc/self/status can't be read or has no such line.
    pub fn of_self() -> io::Result<Capabilities> {
        Capabilities::parse(&fs::read_to_string("/proc/self/status")?).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "no CapEff in /proc/self/status")
        })
    }

    fn parse(status: &str) -> Option<Capabilities> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok().map(Capabilities)
    }

    /// Whether it is in effect.
    pub fn has(self, capability: Capability) -> bool {
        self.0 >> capability.bit() & 1 == 1
    }

    /// What is missing for tracing: CAP_SYS_ADMIN stands for both others, as the kernel has it
    /// (`bpf_capable` and `perfmon_capable`).
    pub fn missing_for_tracing(self) -> Vec<Capability> {
        if self.has(Capability::SysAdmin) {
            return Vec::new();
        }
        self.missing(&[Capability::Bpf, Capability::Perfmon])
    }

    /// What is missing for the lab, besides tracing.
    pub fn missing_for_lab(self) -> Vec<Capability> {
        self.missing(&[Capability::SysAdmin, Capability::NetAdmin])
    }

    fn missing(self, wanted: &[Capability]) -> Vec<Capability> {
        wanted.iter().copied().filter(|&capability| !self.has(capability)).collect()
    }
}

/// Whether this process lives in a user namespace of its own, where capabilities do not reach BPF.
pub fn in_user_namespace() -> bool {
    // In the first user namespace the map is the identity over all of 32 bits (user_namespaces(7)).
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_user_lacks_all() {
        let none = Capabilities::parse("Name:\tx\nCapEff:\t0000000000000000\n").expect("a line");
        assert_eq!(none.missing_for_tracing(), [Capability::Bpf, Capability::Perfmon]);
        assert_eq!(none.missing_for_lab(), [Capability::SysAdmin, Capability::NetAdmin]);
    }

    #[test]
    fn sys_admin_stands_for_bpf_and_perfmon() {
        let admin = Capabilities::parse("CapEff:\t0000000000200000").expect("a line");
        assert_eq!(admin.missing_for_tracing(), []);
        assert_eq!(admin.missing_for_lab(), [Capability::NetAdmin]);
    }

    #[test]
    fn bpf_and_perfmon_are_enough_to_trace() {
        let tracing = Capabilities::parse("CapEff:\t000000c000000000").expect("a line");
        assert_eq!(tracing.missing_for_tracing(), []);
    }
}
