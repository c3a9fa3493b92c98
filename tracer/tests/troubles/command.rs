//! `tracer` as a process, and what it said.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::watched::{Watched, Watcher};

pub(crate) const TRACER: &str = env!("CARGO_BIN_EXE_tracer");

/// Longer than anything here takes, so that a test ends also where it fails.
const PATIENCE: Duration = Duration::from_secs(90);

/// `tracer` with these arguments.
pub(crate) fn tracer(arguments: &[&str]) -> Command {
    let mut command = Command::new(TRACER);
    command.args(arguments);
    command
}

/// `tracer` with these arguments, after a piece of shell in a mount namespace that nobody else sees.
pub(crate) fn tracer_in_mounts(setup: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = format!("{setup}\nexec \"$0\" \"$@\"");
    command.args(["--mount", "sh", "-e", "-c", &script, TRACER]).args(arguments);
    command
}

/// `tracer` with these arguments as root without these capabilities (`net_admin`, `bpf`, …).
pub(crate) fn tracer_without(capabilities: &[&str], arguments: &[&str]) -> Command {
    let drop = capabilities.iter().map(|name| format!("-{name}")).collect::<Vec<_>>().join(",");
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", &drop, "--inh-caps", &drop, TRACER]).args(arguments);
    command
}

/// What a process left.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What it had of the machine.
    pub(crate) watched: Watched,
}

impl Output {
    /// Exit status 2, one line on standard error, nothing on standard output: the line without its prefix.
    #[track_caller]
    pub(crate) fn refusal(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(2), ""), "{}", self.stderr);
        self.line()
    }

    /// The one line on standard error, without its prefix.
    #[track_caller]
    pub(crate) fn line(&self) -> &str {
        let line = self.stderr.strip_prefix("tracer: ").and_then(|line| line.strip_suffix('\n'));
        line.filter(|line| !line.contains('\n')).unwrap_or_else(|| panic!("{:?}", self.stderr))
    }

    /// What clap says in its first line, with exit status 2.
    #[track_caller]
    pub(crate) fn usage_error(&self) -> &str {
        assert_eq!((self.code, self.stdout.as_str()), (Some(2), ""), "{}", self.stderr);
        let line = self.stderr.lines().next().and_then(|line| line.strip_prefix("error: "));
        line.unwrap_or_else(|| panic!("{:?}", self.stderr))
    }

    /// The JSON report on standard output, which holds nothing else.
    #[track_caller]
    pub(crate) fn report(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs it to its end.
#[track_caller]
pub(crate) fn run(command: Command) -> Output {
    Running::start(command).wait()
}

/// A process, in a process group of its own as a shell would make one. Killed at the end of the test.
pub(crate) struct Running {
    child: Child,
    files: [File; 2],
    watcher: Watcher,
}

impl Running {
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Running {
        // Files, since a pipe that nobody reads would hold it up.
        let files = [(); 2].map(|()| tempfile::tempfile().expect("a file can be made"));
        let [stdout, stderr] =
            files.each_ref().map(|file| file.try_clone().expect("as often as wanted"));
        command.stdout(stdout).stderr(stderr).process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let watcher = Watcher::start(child.id());
        Running { child, files, watcher }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid fits"))
    }

    /// Waits until it has come so far.
    #[track_caller]
    pub(crate) fn reach(&mut self, what: &str, has_come: impl Fn(&Watched) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !has_come(&self.watcher.seen()) {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "ended before {what}: {}", read(&mut self.files[1]));
            assert!(Instant::now() < end, "{what} was not reached");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is not waited for yet");
    }

    /// As a terminal does it: to the whole process group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        killpg(self.pid(), signal).expect("it is not waited for yet");
    }

    #[track_caller]
    pub(crate) fn wait(mut self) -> Output {
        let status = self.status();
        let [stdout, stderr] = &mut self.files;
        Output {
            code: status.code(),
            stdout: read(stdout),
            stderr: read(stderr),
            watched: self.watcher.seen(),
        }
    }

    #[track_caller]
    fn status(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < end, "it goes on running: {}", read(&mut self.files[1]));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("it is text");
    text
}
