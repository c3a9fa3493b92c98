//! Who owns a set of names: a locked file that the kernel unlocks when its owner dies, however it dies.
//!
//! An owner's network namespaces all begin with `PREFIX<index>-`. What a dead owner left is recognised by
//! its owner file being there *and* unlocked; a namespace with such a name but without such a file is not
//! ours and is never touched.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::gate;
use super::netns::{self, NetnsError};
use super::process::{self, ProcessError};
use super::tool::ToolError;

/// Where owner files are.
const DIRECTORY: &str = "/run/tracer-lab";
/// How every name of a lab begins.
pub const PREFIX: &str = "tracer-lab";
/// How many owners there can be at a time.
pub const INDEXES: u8 = 64;

/// How long a tool that runs may keep an exit waiting.
const GATE_PATIENCE: Duration = Duration::from_secs(2);

/// How long another lab may hold a lock while it clears what a dead one left.
const SWEEP_PATIENCE: Duration = Duration::from_secs(2);

/// Why no set of names could be had, or a dead owner's could not be cleared.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The owner file could not be made or read.
    #[error("cannot use owner file {path}: needs root")]
    File {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The wanted index has a living owner.
    #[error("{PREFIX}{index} is in use by process {pid}")]
    Alive {
        /// The index.
        index: u8,
        /// The owner.
        pid: String,
    },
    /// There is a namespace with one of our names that we did not make.
    #[error("network namespace {name} is not ours: remove it with `ip netns del {name}`")]
    Foreign {
        /// Its name.
        name: String,
    },
    /// Every index is taken.
    #[error("all {INDEXES} labs of this machine are in use")]
    Full,
    /// What a dead owner left could not be removed.
    #[error("cannot remove network namespace {name} that a dead lab left")]
    Remove {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: ToolError,
    },
    /// The processes of a namespace could not be found.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A process that a dead owner left could not be killed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// An index that is ours for as long as this lives.
#[derive(Debug)]
pub struct Owner {
    index: u8,
    path: PathBuf,
    // Holding the descriptor is holding the lock.
    _file: File,
}

impl Owner {
    /// Clears what dead owners left, and takes the wanted index, or else the first free one.
    ///
    /// # Errors
    /// [`OwnerError`].
    pub fn claim(wanted: Option<u8>) -> Result<Owner, OwnerError> {
        fs::create_dir_all(DIRECTORY)
            .map_err(|source| OwnerError::File { path: DIRECTORY.into(), source })?;
        sweep_dead()?;
        if let Some(index) = wanted {
            return Owner::take_this(index);
        }
        let mut foreign = None;
        for index in 0..INDEXES {
            match Owner::take(index) {
                Ok(Some(owner)) => {
                    if let Some(error) = foreign {
                        log::warn!("{error}; this lab takes other names");
                    }
                    return Ok(owner);
                }
                Ok(None) => {}
                Err(error @ OwnerError::Foreign { .. }) => foreign = foreign.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(foreign.unwrap_or(OwnerError::Full))
    }

    /// The index.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// The name of a namespace of this owner.
    pub fn name(&self, what: &str) -> String {
        format!("{}{what}", prefix(self.index))
    }

    /// Removes every namespace with a name of this owner, and the processes in them.
    ///
    /// # Errors
    /// [`OwnerError`], of the first that could not be removed; the others are tried all the same.
    pub fn sweep(&self) -> Result<(), OwnerError> {
        sweep(self.index)
    }

    fn take_this(index: u8) -> Result<Owner, OwnerError> {
        let until = Instant::now() + SWEEP_PATIENCE;
        loop {
            if let Some(owner) = Owner::take(index)? {
                return Ok(owner);
            }
            // The lock may also be held for a moment by a lab that starts and looks for dead ones.
            let pid = pid_in(&path(index));
            let is_alive = pid.parse().is_ok_and(process::is_running);
            if is_alive || Instant::now() > until {
                return Err(OwnerError::Alive { index, pid });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn take(index: u8) -> Result<Option<Owner>, OwnerError> {
        let Some((mut file, existed)) = lock(index)? else { return Ok(None) };
        if existed {
            // Its owner died between the general clean-up and now.
            sweep(index)?;
        } else if let Some(name) = names_of(index).into_iter().next() {
            // The file was made just now, so whoever made the namespace has none: it must not look as if.
            let _ = fs::remove_file(path(index));
            return Err(OwnerError::Foreign { name });
        }
        let failed = |source| OwnerError::File { path: path(index), source };
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Some(Owner { index, path: path(index), _file: file }))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // What could not be removed still has an owner file then, unlocked: the next lab clears it.
        if names_of(self.index).is_empty() {
            // Removed while locked, so nobody can hold a lock on the file under this name after us.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes what dead owners left: the namespaces whose names begin with theirs, and the processes in them.
///
/// # Errors
/// [`OwnerError`].
pub fn sweep_dead() -> Result<(), OwnerError> {
    for index in (0..INDEXES).filter(|index| path(*index).exists()) {
        if let Some((file, existed)) = lock(index)? {
            let dead = Owner { index, path: path(index), _file: file };
            if existed {
                dead.sweep()?;
            }
        }
    }
    Ok(())
}

/// Removes everything that this very process owns, for an exit that cannot wait for the guards. From then on
/// no other thread makes anything more. The owner file of what could not be removed, or is still being made,
/// stays: the next lab tries again.
pub fn sweep_own() {
    let is_closed = gate::close(GATE_PATIENCE);
    let own = std::process::id().to_string();
    for index in (0..INDEXES).filter(|index| pid_in(&path(*index)) == own) {
        match sweep(index) {
            Err(error) => log::error!("{error}; the next lab tries again"),
            // It is still locked by this process, as it must be to be removed.
            Ok(()) if is_closed => drop(fs::remove_file(path(index))),
            // Without its file, what is made now would look as if somebody else had made it.
            Ok(()) => {}
        }
    }
}

/// Opens and locks an owner file, and says whether it had been there. None: it has a living owner.
fn lock(index: u8) -> Result<Option<(File, bool)>, OwnerError> {
    let path = path(index);
    let failed = |source| OwnerError::File { path: path.clone(), source };
    loop {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // Its last owner may have removed the name between our opening and our locking it.
        let ours = file.metadata().map_err(failed)?;
        match fs::metadata(&path) {
            Ok(named) if named.ino() == ours.ino() => return Ok(Some((file, ours.len() > 0))),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn sweep(index: u8) -> Result<(), OwnerError> {
    let mut result = Ok(());
    for name in names_of(index) {
        result = result.and(remove(&name));
    }
    result
}

fn remove(name: &str) -> Result<(), OwnerError> {
    process::kill_foreign(&netns::processes(name)?)?;
    netns::delete(name).map_err(|source| OwnerError::Remove { name: name.to_owned(), source })
}

fn names_of(index: u8) -> Vec<String> {
    let prefix = prefix(index);
    netns::names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

/// What a name of [`Owner::name`] was made of; none if it is not one.
pub fn part(name: &str) -> Option<&str> {
    let (index, part) = name.strip_prefix(PREFIX)?.split_once('-')?;
    index.parse::<u8>().is_ok().then_some(part)
}

fn prefix(index: u8) -> String {
    format!("{PREFIX}{index}-")
}

fn path(index: u8) -> PathBuf {
    Path::new(DIRECTORY).join(format!("{index}.owner"))
}

fn pid_in(path: &Path) -> String {
    let mut text = String::new();
    match File::open(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => text.trim().to_owned(),
        Err(_) => String::new(),
    }
}
