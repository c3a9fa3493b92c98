//! What cannot work is said before anything is done.

use std::fs::File;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;
use tracer::kernel::has_programs;
use tracer::sys::tool::{CONNTRACK, IP, IPTABLES_RESTORE};

use crate::command::{Output, TRACER, run, tracer_in_mounts, tracer_without};
use crate::host::Host;
use crate::{Needs, is_left_out};

const LAB: [&str; 4] = ["lab", "--quick", "--duration", "12s"];
const RECORD: [&str; 5] = ["record", "--service", "192.0.2.1:80", "--duration", "1s"];

/// `tracer` as an account that may do nothing.
fn as_nobody(arguments: &[&str]) -> Output {
    if !geteuid().is_root() {
        return run(crate::command::tracer(arguments));
    }
    // By its open file: it may lie in a directory that nobody else can enter.
    let program = File::open(TRACER).expect("it was built");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "/proc/self/fd/0"]);
    command.args(arguments).stdin(Stdio::from(program));
    run(command)
}

#[test]
fn without_root_there_is_no_lab() {
    let host = Host::now();
    let output = as_nobody(&LAB);
    let expected = "the lab makes network namespaces: run it as root (sudo)";
    assert_eq!(output.refusal(), expected);
    assert_eq!(output.watched.index, None, "no name was taken");
    host.is_as_before(&[&output]);
}

#[test]
fn without_privileges_nothing_is_recorded() {
    let expected = if has_programs() {
        "needs CAP_BPF and CAP_PERFMON (or root); see `tracer doctor`"
    } else {
        "built without BPF programs: cargo xtask build"
    };
    assert_eq!(as_nobody(&RECORD).refusal(), expected);
}

#[test]
fn each_missing_capability_is_named() {
    if is_left_out("each_missing_capability_is_named", Needs::Tracing) {
        return;
    }
    let host = Host::now();
    for (missing, arguments, expected) in [
        (&["net_admin"][..], &LAB[..], "needs CAP_NET_ADMIN (or root); see `tracer doctor`"),
        (&["sys_admin"], &LAB, "needs CAP_SYS_ADMIN (or root); see `tracer doctor`"),
        (&["sys_admin", "bpf"], &RECORD, "needs CAP_BPF (or root); see `tracer doctor`"),
        (&["sys_admin", "perfmon"], &RECORD, "needs CAP_PERFMON (or root); see `tracer doctor`"),
    ] {
        let output = run(tracer_without(missing, arguments));
        assert_eq!(output.refusal(), expected);
        assert_eq!(output.watched.index, None, "no name was taken");
        host.is_as_before(&[&output]);
    }
}

#[test]
fn a_kernel_without_btf_is_named() {
    if is_left_out("a_kernel_without_btf_is_named", Needs::Tracing) {
        return;
    }
    let hide = "mount -t tmpfs none /sys/kernel/btf";
    for arguments in [&LAB[..], &RECORD] {
        let output = run(tracer_in_mounts(hide, arguments));
        assert_eq!(
            output.refusal(),
            "reading the kernel's types: cannot read /sys/kernel/btf/vmlinux: the kernel needs \
             CONFIG_DEBUG_INFO_BTF: No such file or directory (os error 2)"
        );
        assert_eq!(output.watched.index, None, "no name was taken");
    }
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    if is_left_out("a_missing_tool_is_named_with_its_package", Needs::Lab) {
        return;
    }
    for tool in [IP, IPTABLES_RESTORE, CONNTRACK] {
        let path = tool.find().expect("it was found above");
        // What is no regular file is no program; the link that it may be must stay.
        let hide = format!("mount --bind /dev/null \"$(readlink -f {})\"", path.display());
        let output = run(tracer_in_mounts(&hide, &LAB));
        let expected = format!(
            "`{}` is missing: install it with `apt-get install {}`",
            tool.name, tool.package
        );
        assert_eq!(output.refusal(), expected);
        assert_eq!(output.watched.index, None, "no name was taken");
    }
}

/// A `/run` of one's own, in which somebody has taken names of the lab's kind.
fn taken(numbers: &str) -> String {
    format!(
        "mount -t tmpfs none /run
         mkdir /run/netns
         for number in {numbers}; do touch /run/netns/tracer-lab$number-somebody; done"
    )
}

#[test]
fn a_name_that_is_taken_is_left_alone_and_another_one_used() {
    if is_left_out("a_name_that_is_taken_is_left_alone_and_another_one_used", Needs::Lab) {
        return;
    }
    let host = Host::now();
    let after = "\"$0\" \"$@\" || exit\n cd /run/netns; echo \"left: $(echo *)\" >&2; exit";
    let setup = format!("{}\n{after}", taken("0"));
    let output = run(tracer_in_mounts(&setup, &["lab", "--quick", "--duration", "1s"]));
    assert_eq!(
        output.stderr,
        "tracer: network namespace tracer-lab0-somebody is not ours: remove it with \
         `ip netns del tracer-lab0-somebody`; this lab takes other names\n\
         left: tracer-lab0-somebody\n"
    );
    assert_eq!(output.code, Some(0));
    host.is_as_before(&[&output]);
}

#[test]
fn when_all_names_are_taken_one_is_named() {
    if is_left_out("when_all_names_are_taken_one_is_named", Needs::Lab) {
        return;
    }
    let output = run(tracer_in_mounts(&taken("$(seq 0 63)"), &LAB));
    assert_eq!(
        output.refusal(),
        "network namespace tracer-lab0-somebody is not ours: remove it with \
         `ip netns del tracer-lab0-somebody`"
    );
}
