//! Named network namespaces, as `ip netns` shows them, and work done inside one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use nix::sched::{CloneFlags, setns};

use super::tool::{IP, ToolError};
use crate::model::NetnsId;

/// Where `ip netns` keeps the names.
const NAMES: &str = "/run/netns";

/// Why a network namespace could not be made, entered or read.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// `ip` failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The name could not be opened.
    #[error("cannot open network namespace {path}")]
    Open {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It could not be entered.
    #[error("cannot enter network namespace {name}: needs CAP_SYS_ADMIN")]
    Enter {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No thread could be had.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// A named network namespace, held open: it can be entered for as long as this lives, even if its name goes.
#[derive(Debug)]
pub struct Netns {
    name: String,
    id: NetnsId,
    file: File,
}

impl Netns {
    /// Opens the namespace of this name.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn open(name: &str) -> Result<Netns, NetnsError> {
        Netns::open_path(name, &Path::new(NAMES).join(name))
    }

    /// Opens the namespace that the calling thread is in.
    ///
    /// # Errors
    /// [`NetnsError::Open`].
    pub fn current() -> Result<Netns, NetnsError> {
        Netns::open_path("current", Path::new("/proc/thread-self/ns/net"))
    }

    fn open_path(name: &str, path: &Path) -> Result<Netns, NetnsError> {
        let failed = |source| NetnsError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let id = netns_id(file.metadata().map_err(failed)?.ino());
        Ok(Netns { name: name.to_owned(), id, file })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its inode number.
    pub fn id(&self) -> NetnsId {
        self.id
    }

    /// Moves the calling thread into it, for good.
    ///
    /// # Errors
    /// [`NetnsError::Enter`].
    pub fn enter(&self) -> Result<(), NetnsError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| NetnsError::Enter { name: self.name.clone(), source: errno.into() })
    }

    /// Runs `work` inside it, on a thread of its own: a network namespace belongs to a thread, and sockets,
    /// threads and processes that `work` makes are born in it.
    ///
    /// # Errors
    /// [`NetnsError`] at once if there is no thread or no descriptor to be had; from the thread if it could
    /// not enter.
    pub fn spawn<T, W>(&self, work: W) -> Result<JoinHandle<Result<T, NetnsError>>, NetnsError>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let path = || Path::new(NAMES).join(&self.name);
        let file = self.file.try_clone();
        let file = file.map_err(|source| NetnsError::Open { path: path(), source })?;
        let inside = Netns { name: self.name.clone(), id: self.id, file };
        thread::Builder::new()
            .name(format!("in {}", self.name))
            .spawn(move || {
                inside.enter()?;
                drop(inside);
                Ok(work())
            })
            .map_err(NetnsError::Thread)
    }

    /// Runs `work` inside it and waits for the result.
    ///
    /// # Errors
    /// [`NetnsError`] if no thread could be started or it could not enter.
    ///
    /// # Panics
    /// If `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            });
            match thread.map_err(NetnsError::Thread)?.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The addresses of the calling thread's namespace, its loopback's left out.
pub fn addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    addresses.filter(|address| !address.is_loopback()).collect()
}

/// The names that `ip netns` would list.
pub fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(NAMES) else {
        // There is no such directory until the first namespace gets a name.
        return Vec::new();
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The namespaces that this machine shows: the calling thread's own first, those with a name, and those of
/// every process in /proc. One that goes away meanwhile, or that may not be opened, is left out.
pub fn visible() -> Vec<Netns> {
    let named = names().into_iter().filter_map(|name| Netns::open(&name).ok());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Netns::open_path(&format!("process {pid}"), &entry.path().join("ns/net")).ok()
    });
    let mut seen = BTreeSet::new();
    let all = Netns::current().into_iter().chain(named).chain(processes);
    all.filter(|netns| seen.insert(netns.id)).collect()
}

/// Makes namespaces of these names, with their loopback device up.
///
/// # Errors
/// [`ToolError`]; a name that is taken is one. What was made by then is taken away again.
pub fn create(names: &[&str]) -> Result<(), ToolError> {
    let mut made = Vec::new();
    for name in names {
        match IP.run(&["netns", "add", name], "") {
            Ok(_) => made.push(*name),
            Err(error) => {
                for name in made {
                    // The error that ended this says more than one that its clean-up could have.
                    let _ = delete(name);
                }
                return Err(error);
            }
        }
    }
    for name in names {
        batch(name, "link set lo up\n")?;
    }
    Ok(())
}

/// Takes the name away. The namespace ends with its last process, thread and open file.
///
/// # Errors
/// [`ToolError`].
pub fn delete(name: &str) -> Result<(), ToolError> {
    IP.run(&["netns", "del", name], "").map(drop)
}

/// Runs a batch of `ip` commands, one a line, inside the namespace of this name.
///
/// # Errors
/// [`ToolError`], of the first command that fails.
pub fn batch(name: &str, commands: &str) -> Result<(), ToolError> {
    IP.run(&["-n", name, "-batch", "-"], commands).map(drop)
}

/// The processes that are in the namespace of this name, except this one.
///
/// # Errors
/// [`NetnsError::Open`] if there is no such name.
pub fn processes(name: &str) -> Result<Vec<i32>, NetnsError> {
    let id = Netns::open(name)?.id();
    let Ok(entries) = fs::read_dir("/proc") else { return Ok(Vec::new()) };
    let own = i32::try_from(std::process::id()).expect("a pid is positive and fits");
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        // A process that ends meanwhile has no namespace any more.
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|meta| netns_id(meta.ino()) == id)
        })
        .collect())
}

fn netns_id(inode: u64) -> NetnsId {
    NetnsId(u32::try_from(inode).expect("the inode numbers of nsfs are 32 bits wide"))
}
