//! Whatever attach asks the API for, the roles of deploy/ allow; and they allow nothing that it never asks for.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::World;

/// A right: role, verb, group and resource.
type Right = (String, String, String, String);

fn rights() -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for file in ["attach.yaml", "roll.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/roles").join(file);
        let text = fs::read_to_string(path).expect("a manifest");
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
        for role in documents {
            let name = role["metadata"]["name"].as_str().expect("a name").to_owned();
            let words = |rule: &Value, field: &str| -> Vec<String> {
                serde_json::from_value(rule[field].clone()).expect("a list of words")
            };
            for rule in role["rules"].as_array().expect("rules") {
                for group in words(rule, "apiGroups") {
                    for resource in words(rule, "resources") {
                        for verb in words(rule, "verbs") {
                            rights.insert((name.clone(), verb, group.clone(), resource.clone()));
                        }
                    }
                }
            }
        }
    }
    rights
}

#[test]
fn the_roles_of_deploy_are_what_attach_asks_for() {
    let world = World::new();
    let everything = ["--all-nodes", "--service", "demo/web", "--load", "--roll", "web"];
    let said = world.run(&[&everything[..], &["--duration", "5500ms"]].concat());
    assert!(matches!(said.code, Some(0 | 3)), "{}", said.stderr);
    let said = world.run(&["--pod", "demo/client", "--service", "demo/web", "--duration", "300ms"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let rights = rights();
    let mut used = BTreeSet::new();
    for ask in world.server.asked() {
        // In its own namespace by one role; elsewhere by those that look, or restart.
        let roles: &[&str] = match ask.namespace.as_deref() {
            Some("tracer") => &["tracer-attach"],
            _ => &["tracer-attach-look", "tracer-roll"],
        };
        let of = |role: &str| {
            let words = (ask.verb.name().to_owned(), ask.group().to_owned(), ask.resource.clone());
            (role.to_owned(), words.0, words.1, words.2)
        };
        let granted: Vec<Right> =
            roles.iter().map(|role| of(role)).filter(|right| rights.contains(right)).collect();
        assert!(!granted.is_empty(), "no role allows {ask:?}");
        used.extend(granted);
    }
    // A server since 1.35 asks for this one as well, where a WebSocket begins.
    let word = |word: &str| word.to_owned();
    used.insert((word("tracer-attach"), word("create"), word(""), word("pods/exec")));
    let unused: Vec<_> = rights.difference(&used).collect();
    assert!(unused.is_empty(), "never asked for: {unused:?}");
}

/// What the pod's securityContext leaves of root, here by setpriv(1): the bounding set, and no new privileges.
#[test]
fn two_capabilities_are_enough_to_record_with_the_nodes_timers() {
    let name = "two_capabilities_are_enough_to_record_with_the_nodes_timers";
    if !nix::unistd::geteuid().is_root() {
        eprintln!("left out: {name}: needs root");
        return;
    }
    if let Err(error) = tracer::kernel::preflight() {
        eprintln!("left out: {name}: {error}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("trace");
    let mut record = Command::new("setpriv");
    record.args(["--no-new-privs", "--bounding-set=-all,+bpf,+perfmon", "--inh-caps=-all"]);
    record.args([env!("CARGO_BIN_EXE_tracer"), "record", "--service", "192.0.2.1:80"]);
    let output = record.args(["--duration", "300ms"]).arg(&trace).output().expect("setpriv starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let reader = tracer::files::TraceReader::open(&trace).expect("a trace");
    let header = reader.header();
    assert!(header.sees_syns(), "{:?}", header.hooks);
    let timer = "net.netfilter.nf_conntrack_tcp_timeout_syn_sent";
    let has_conntrack = Path::new("/proc/sys").join(timer.replace('.', "/")).exists();
    assert_eq!(header.sysctls.iter().any(|sysctl| sysctl.name == timer), has_conntrack);
}
