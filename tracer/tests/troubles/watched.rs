//! What one process has of the machine while it runs: its lab's index, its BPF programs, its children. Other
//! labs and tracers may be at work beside it, so this is what a comparison must be about.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracer::sys::netns;

/// include/uapi/linux/bpf.h
const BPF_MAP_TYPE_RINGBUF: u32 = 27;

/// What was seen of a process so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    pub(crate) pid: u32,
    /// The lab's index, from its owner file.
    pub(crate) index: Option<u8>,
    /// The ids of the BPF programs that it had loaded at any time.
    pub(crate) programs: BTreeSet<u32>,
    /// The sizes of its ring buffers in bytes.
    pub(crate) rings: BTreeSet<u32>,
    /// Its child processes, each with the time of its start: a number may be given again.
    pub(crate) children: BTreeSet<(i32, u64)>,
}

impl Watched {
    /// The names of its lab's namespaces that there are now.
    pub(crate) fn names(&self) -> Vec<String> {
        let Some(index) = self.index else { return Vec::new() };
        let prefix = format!("tracer-lab{index}-");
        netns::names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
    }

    /// Those of its programs that are loaded now.
    pub(crate) fn loaded(&self) -> Vec<u32> {
        let loaded =
            aya::programs::loaded_programs().filter_map(|program| Some(program.ok()?.id()));
        loaded.filter(|id| self.programs.contains(id)).collect()
    }

    /// Those of its children that live.
    pub(crate) fn living(&self) -> Vec<i32> {
        let lives = |(pid, start): &&(i32, u64)| started(*pid) == Some(*start);
        self.children.iter().filter(lives).map(|(pid, _)| *pid).collect()
    }

    /// Its owner file, if it is there and still says so.
    pub(crate) fn owner_file(&self) -> Option<PathBuf> {
        owner_files().into_iter().find(|(_, _, pid)| *pid == self.pid).map(|(path, ..)| path)
    }

    /// Whether another lab has its index by now.
    pub(crate) fn has_heir(&self) -> bool {
        let files = owner_files().into_iter();
        files.into_iter().any(|(_, index, pid)| Some(index) == self.index && pid != self.pid)
    }

    /// Waits until none of its programs is loaded and none of its children lives: false if that takes long.
    pub(crate) fn loses_programs_and_children(&self) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while !(self.loaded().is_empty() && self.living().is_empty()) {
            if Instant::now() > end {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn look(&mut self) {
        if self.index.is_none() {
            let files = owner_files().into_iter();
            self.index =
                files.into_iter().find(|(_, _, pid)| *pid == self.pid).map(|(_, index, _)| index);
        }
        for path in files(&format!("/proc/{}/fdinfo", self.pid)) {
            let text = fs::read_to_string(path).unwrap_or_default();
            let number =
                |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            self.programs.extend(number("prog_id:"));
            if number("map_type:") == Some(BPF_MAP_TYPE_RINGBUF) {
                self.rings.extend(number("max_entries:"));
            }
        }
        for task in files(&format!("/proc/{}/task", self.pid)) {
            let children = fs::read_to_string(task.join("children")).unwrap_or_default();
            let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
            self.children.extend(pids.filter_map(|pid| Some((pid, started(pid)?))));
        }
    }
}

/// Looks at a process again and again, on a thread of its own.
pub(crate) struct Watcher {
    seen: Arc<Mutex<Watched>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(pid: u32) -> Watcher {
        let seen = Arc::new(Mutex::new(Watched { pid, ..Watched::default() }));
        let shared = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            // Ends when nobody else is interested.
            while Arc::strong_count(&shared) > 1 {
                let mut next = shared.lock().expect("nobody panics with it").clone();
                next.look();
                *shared.lock().expect("nobody panics with it") = next;
                thread::sleep(Duration::from_millis(10));
            }
        });
        Watcher { seen, thread: Some(thread) }
    }

    pub(crate) fn seen(&self) -> Watched {
        self.seen.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.seen = Arc::default();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Path, index and owner of each owner file that can be read.
fn owner_files() -> Vec<(PathBuf, u8, u32)> {
    let read = |path: PathBuf| {
        let index = path.file_stem()?.to_str()?.parse().ok()?;
        let pid = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        Some((path, index, pid))
    };
    files("/run/tracer-lab").into_iter().filter_map(read).collect()
}

fn files(directory: &str) -> Vec<PathBuf> {
    // It may not be there, or be gone by now.
    fs::read_dir(directory).map_or(Vec::new(), |entries| {
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    })
}

/// When a process started, in ticks since boot (field 22 of proc_pid_stat(5)); none if it is gone or dead.
fn started(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state.starts_with(['Z', 'X']) { None } else { fields.nth(18)?.parse().ok() }
}
