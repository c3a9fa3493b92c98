//! Cgroups of the unified hierarchy (cgroups(7), version 2): their numbers, and what Kubernetes' paths name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where the unified hierarchy is mounted, alone or beside version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
/// Folders that are looked through for one number: a node has some hundred.
const MOST: usize = 100_000;

/// The root of the unified hierarchy, if it is mounted.
fn root() -> Option<&'static Path> {
    ROOTS.map(Path::new).into_iter().find(|root| root.join("cgroup.controllers").exists())
}

/// The path of the cgroup with this number (`bpf_get_current_cgroup_id`: its folder's inode), from the hierarchy's
/// root; none if it is gone or the hierarchy is not mounted.
pub fn path(id: u64) -> Option<String> {
    let root = root()?;
    if fs::metadata(root).ok()?.ino() == id {
        return Some("/".to_owned());
    }
    let mut found = None;
    walk(root, &mut |folder, number| {
        if number == id {
            found = Some(folder.to_owned());
        }
        found.is_none()
    });
    let found = found?;
    let within = found.strip_prefix(root).ok()?;
    Some(format!("/{}", within.display()))
}

/// The numbers of a cgroup and of all below it, by its path from the hierarchy's root.
pub fn below(path: &str) -> BTreeSet<u64> {
    let Some(root) = root() else { return BTreeSet::new() };
    let top = root.join(path.trim_start_matches('/'));
    let Ok(metadata) = fs::metadata(&top) else { return BTreeSet::new() };
    let mut numbers = BTreeSet::from([metadata.ino()]);
    walk(&top, &mut |_, number| {
        numbers.insert(number);
        true
    });
    numbers
}

/// Goes through the folders below one until `see` has had enough.
fn walk(top: &Path, see: &mut dyn FnMut(&Path, u64) -> bool) {
    let mut folders: Vec<PathBuf> = vec![top.to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            looked += 1;
            if looked > MOST || !see(&entry.path(), entry.ino()) {
                return;
            }
            folders.push(entry.path());
        }
    }
}

/// What a path names, as the kubelet and the container runtimes make them
/// (kubernetes pkg/kubelet/cm/cgroup_manager_linux.go; containerd and CRI-O put the container below).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The pod's uid.
    pub pod: Option<String>,
    /// The container's id.
    pub container: Option<String>,
}

/// Reads a path: `/kubepods.slice/…/kubepods-burstable-podUID.slice/cri-containerd-ID.scope` (systemd), or
/// `/kubepods/burstable/podUID/ID` (cgroupfs).
pub fn named(path: &str) -> Named {
    let mut named = Named::default();
    for part in path.split('/') {
        let part = part.trim_end_matches(".slice").trim_end_matches(".scope");
        if let Some((before, uid)) = part.rsplit_once("pod")
            && (before.is_empty() || before.starts_with("kubepods"))
            && is_uid(uid)
        {
            // systemd takes a dash for a level, so it is written as an underscore.
            named.pod = Some(uid.replace('_', "-"));
            continue;
        }
        let id = part.rsplit_once(['-', ':']).map_or(part, |(_, id)| id);
        if named.pod.is_some() && id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
            named.container = Some(id.to_owned());
        }
    }
    named
}

/// A UUID, with dashes or underscores; or the hash that names a static pod.
fn is_uid(uid: &str) -> bool {
    let hex = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let dashes = uid.bytes().filter(|byte| matches!(byte, b'-' | b'_')).count();
    hex == 32 && (dashes == 4 || dashes == 0) && hex + dashes == uid.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "78c9095ed0c7f6fff4827d5629851c9b0a1c12e4bd9a35a93d2b1cca2e75619f";

    fn check(path: &str, pod: Option<&str>, container: Option<&str>) {
        let expected =
            Named { pod: pod.map(str::to_owned), container: container.map(str::to_owned) };
        assert_eq!(named(&path.replace("ID", ID)), expected, "{path}");
    }

    #[test]
    fn paths_of_kubernetes_name_pod_and_container() {
        let pod = Some("eae2836b-4434-461b-a2ba-455bc99cc5e2");
        check(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podeae2836b_4434_461b_a2ba_455bc99cc5e2.slice/cri-containerd-ID.scope",
            pod,
            Some(ID),
        );
        check("/kubepods/burstable/podeae2836b-4434-461b-a2ba-455bc99cc5e2/ID", pod, Some(ID));
        check("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod0.slice", None, None);
        check(
            "/kubepods.slice/kubepods-podd0b1f6f2c8a74e0b9f4d9e2c3b1a0f55.slice/crio-ID.scope/container",
            Some("d0b1f6f2c8a74e0b9f4d9e2c3b1a0f55"),
            Some(ID),
        );
        check("/system.slice/docker-ID.scope", None, None);
        check("/user.slice/podman.slice", None, None);
        check("/", None, None);
    }
}
