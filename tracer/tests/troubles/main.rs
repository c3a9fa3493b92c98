//! Bad input and trouble: each gets one clear line and an exit status, and leaves the machine as it was.
//! What needs root, or a build with BPF programs, says so where it is left out.

mod before;
mod command;
mod full_disk;
mod host;
mod interrupted;
mod killed;
mod options;
mod quiet;
mod recording;
mod replay;
mod ring;
mod watched;

use std::io::{self, Write};
use std::path::Path;

use nix::unistd::geteuid;
use tracer::kernel::has_programs;
use tracer::sys::tool::{CONNTRACK, IP, IPTABLES_RESTORE};

/// What a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// To be root, for what other accounts can't do at all.
    Root,
    /// Root and BPF programs.
    Tracing,
    /// Both and the tools of the lab.
    Lab,
}

/// Whether this machine does not allow a test; then the reason is printed.
fn is_left_out(test: &str, needs: Needs) -> bool {
    let has_tools = || [IP, IPTABLES_RESTORE, CONNTRACK].iter().all(|tool| tool.find().is_ok());
    let reason = if !geteuid().is_root() {
        "needs root"
    } else if needs == Needs::Root {
        return false;
    } else if !has_programs() {
        "built without BPF programs: cargo xtask build"
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        "needs a kernel with BTF"
    } else if needs == Needs::Lab && !has_tools() {
        "needs iproute2, iptables and conntrack"
    } else {
        return false;
    };
    // Not eprintln!: the test harness would swallow it, and a test that is left out must be heard of.
    let _ = writeln!(io::stderr(), "left out: {test}: {reason}");
    true
}
