//! Child processes in network and PID namespaces of their own, and their certain end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::clock;
use super::gate;
use super::netns::{Netns, NetnsError};
use crate::model::MonoNs;

/// How long a process may take to vanish after SIGKILL: it can't refuse, but the kernel must find time.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Why a process could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// Its network namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// No PID namespace could be had.
    #[error("cannot make a PID namespace: needs CAP_SYS_ADMIN")]
    PidNamespace(#[source] io::Error),
    /// The program could not be started.
    #[error("cannot start `{program}`")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is still there some time after SIGKILL.
    #[error("process {pid} is still there {} s after SIGKILL", KILL_PATIENCE.as_secs())]
    Unkillable {
        /// Its pid.
        pid: i32,
    },
    /// It could not be signalled.
    #[error("cannot signal process {pid}")]
    Signal {
        /// Its pid.
        pid: i32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When its end was seen.
    pub time: MonoNs,
    /// Its exit status.
    pub status: ExitStatus,
    /// The end of what it wrote to its standard error.
    pub stderr: String,
}

/// A child process that is PID 1 of a PID namespace of its own. Dropping it kills it: whatever else runs in
/// its PID namespace dies with it (pid_namespaces(7)).
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    end: Arc<End>,
    waiter: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct End {
    ended: Mutex<Option<Ended>>,
    changed: Condvar,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<Ended>> {
        // The value is written in one assignment, so a panic elsewhere cannot leave it half done.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    /// Starts `command` in `netns`, as PID 1 of a PID namespace of its own, with nothing on its standard
    /// input and output.
    ///
    /// The thread that starts it lives until it ends: `unshare(CLONE_NEWPID)` puts the *children of the
    /// calling thread* into the new namespace (after that the thread cannot make threads any more), and a
    /// child that asked to die with its parent (`PR_SET_PDEATHSIG`) dies with that thread.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn start(netns: Netns, mut command: Command) -> Result<Process, ProcessError> {
        let end = Arc::new(End::default());
        let (sender, receiver) = mpsc::channel();
        let waiter_end = Arc::clone(&end);
        let waiter = thread::Builder::new()
            .name("process".to_owned())
            .spawn(move || {
                let (child, stderr) = match start_here(&netns, &mut command) {
                    Ok(started) => started,
                    Err(error) => {
                        // The other end waits for exactly this message.
                        let _ = sender.send(Err(error));
                        return;
                    }
                };
                drop(netns);
                let _ = sender.send(Ok(child));
                wait_here(child, stderr, &waiter_end);
            })
            .map_err(NetnsError::Thread)?;
        let pid = receiver.recv().expect("the thread always sends a result")?;
        Ok(Process { pid, end, waiter: Some(waiter) })
    }

    /// Its pid, as this process sees it.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<Ended> {
        self.end.lock().clone()
    }

    /// Sends a signal; nothing happens if it has ended.
    ///
    /// # Errors
    /// [`ProcessError::Signal`].
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        // While the lock is held, the process is not reaped, so its number can't belong to another.
        let ended = self.end.lock();
        if ended.is_some() {
            return Ok(());
        }
        kill(self.pid, signal)
            .map_err(|errno| ProcessError::Signal { pid: self.pid.as_raw(), source: errno.into() })
    }

    /// Waits until it has ended, at most for `patience`.
    pub fn wait(&self, patience: Duration) -> Option<Ended> {
        let until = Instant::now() + patience;
        let mut ended = self.end.lock();
        while ended.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            ended = self
                .end
                .changed
                .wait_timeout(ended, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        ended.clone()
    }

    /// Kills it and waits until it is gone.
    ///
    /// # Errors
    /// [`ProcessError::Unkillable`] if the kernel needs longer than 10 s; [`ProcessError::Signal`].
    pub fn kill(&self) -> Result<Ended, ProcessError> {
        self.signal(Signal::SIGKILL)?;
        self.wait(KILL_PATIENCE).ok_or(ProcessError::Unkillable { pid: self.pid() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.kill().is_ok()
            && let Some(waiter) = self.waiter.take()
        {
            // It has nothing left to do but to return.
            let _ = waiter.join();
        }
    }
}

/// Kills processes that are not our children and waits until they are gone or dead and unreaped.
///
/// # Errors
/// [`ProcessError::Unkillable`], [`ProcessError::Signal`].
pub fn kill_foreign(pids: &[i32]) -> Result<(), ProcessError> {
    for pid in pids {
        match kill(Pid::from_raw(*pid), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(ProcessError::Signal { pid: *pid, source: errno.into() }),
        }
    }
    let until = Instant::now() + KILL_PATIENCE;
    for pid in pids {
        while is_running(*pid) {
            if Instant::now() > until {
                return Err(ProcessError::Unkillable { pid: *pid });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}

/// Whether a process exists and is not a zombie.
pub fn is_running(pid: i32) -> bool {
    // The state follows the command name, which is in parentheses and may hold any character.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| Some(stat.rsplit_once(')')?.1.trim_start().starts_with(['Z', 'X'])))
        .is_some_and(|dead| !dead)
}

fn start_here(netns: &Netns, command: &mut Command) -> Result<(Pid, File), ProcessError> {
    netns.enter()?;
    unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| ProcessError::PidNamespace(errno.into()))?;
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source| ProcessError::Start { program: program.clone(), source };
    // A file in memory, not a pipe: a talkative process must never block on a reader.
    let stderr =
        memfd_create(c"stderr", MFdFlags::MFD_CLOEXEC).map_err(|errno| failed(errno.into()))?;
    let stderr = File::from(stderr);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.try_clone().map_err(failed)?)
        // Ctrl-C on the terminal is for the program, not for what it started.
        .process_group(0);
    let pass = gate::pass();
    let child = command.spawn().map_err(failed)?;
    drop(pass);
    // From here on `waitid` by pid is the only one to wait for it; dropping the handle does nothing.
    Ok((Pid::from_raw(i32::try_from(child.id()).expect("a pid fits")), stderr))
}

fn wait_here(child: Pid, stderr: File, end: &End) {
    // First look without reaping, to know the moment; then reap under the lock that `signal` takes.
    let seen = retry(|| waitid(Id::Pid(child), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT));
    let time = clock::now();
    let mut ended = end.lock();
    let reaped = retry(|| waitid(Id::Pid(child), WaitPidFlag::WEXITED));
    let status = match seen.and(reaped) {
        Ok(WaitStatus::Exited(_, code)) => ExitStatus::from_raw(code << 8),
        Ok(WaitStatus::Signaled(_, signal, _)) => ExitStatus::from_raw(signal as i32),
        // Someone else reaped it: it is gone, how is not known.
        Ok(_) | Err(_) => ExitStatus::from_raw(0),
    };
    *ended = Some(Ended { time, status, stderr: tail(stderr).unwrap_or_default() });
    end.changed.notify_all();
}

fn retry<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            result => return result,
        }
    }
}

/// The last 2 KiB of a file, as text.
fn tail(mut file: File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(2048)))?;
    let mut bytes = Vec::new();
    file.take(2048).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
