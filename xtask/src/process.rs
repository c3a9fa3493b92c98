//! Running other programs: found or not, as whom, and one clear line when they fail.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Folders with administrators' programs, which an ordinary account's PATH lacks on Debian.
const ADMIN_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// What cargo and rustup set for the program that they run, and what would change a build that is started
/// from it: a build must be the same whether it was asked for by `cargo xtask` or by hand.
const OUTER_BUILD: [&str; 12] = [
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// How this account becomes root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// It is root.
    Root,
    /// By sudo.
    Sudo,
    /// Not at all.
    None,
}

impl Privilege {
    /// This account's.
    pub(crate) fn of_this_account() -> Result<Privilege> {
        let status =
            fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
        if effective_uid(&status) == Some(0) {
            Ok(Privilege::Root)
        } else if find("sudo").is_some() {
            Ok(Privilege::Sudo)
        } else {
            Ok(Privilege::None)
        }
    }

    /// The words that go before a command line to run it as root with this environment; none where this
    /// account can't become root.
    pub(crate) fn prefix(self) -> Option<Vec<OsString>> {
        match self {
            Privilege::Root => Some(Vec::new()),
            // `--preserve-env` does not keep PATH where sudoers has a secure_path, so `env` puts it back.
            Privilege::Sudo => Some(vec![
                "sudo".into(),
                "--preserve-env".into(),
                "env".into(),
                with_prefix("PATH=", &search_path()),
            ]),
            Privilege::None => None,
        }
    }

    /// A command that runs as root.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Result<Command> {
        let Some(prefix) = self.prefix() else {
            bail!("{} must run as root, and there is no sudo", program.as_ref().display());
        };
        let mut words = prefix.into_iter().chain([program.as_ref().to_owned()]);
        let mut command = Command::new(words.next().expect("at least the program"));
        command.args(words).env("PATH", search_path());
        Ok(command)
    }
}

/// `Uid:` of /proc/PID/status: real, effective, saved, file system (proc_pid_status(5)).
fn effective_uid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn with_prefix(prefix: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(value);
    word
}

/// PATH, and the administrators' folders after it.
pub(crate) fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(
        ADMIN_FOLDERS
            .iter()
            .map(PathBuf::from)
            .filter(|dir| !folders.contains(dir))
            .collect::<Vec<_>>(),
    );
    env::join_paths(folders).unwrap_or(path)
}

/// Where a program lies, if it can be run.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&search_path())
        .map(|folder| folder.join(program))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Cargo, free of what the outer cargo set for us and of what the user chose for host builds.
pub(crate) fn cargo(root: &Path) -> Command {
    cargo_at(&env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// The same with another cargo.
pub(crate) fn cargo_at(program: &OsStr, root: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root);
    let set_by_cargo = |name: &str| {
        OUTER_BUILD.contains(&name)
            || ["CARGO_PKG_", "CARGO_BIN_"].iter().any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(set_by_cargo) {
            command.env_remove(name);
        }
    }
    // A crate of the registry may name a toolchain for itself, and where rustc is rustup's stand-in, it would heed that:
    // a cargo takes the compiler that it came with.
    let rustc = Path::new(program).with_file_name("rustc");
    if rustc.is_absolute() && is_executable(&rustc) {
        command.env("RUSTC", rustc);
    }
    command
}

/// Cargo for a host build: what the user chose for those stays.
pub(crate) fn host_cargo(root: &Path) -> Command {
    let mut command = cargo(root);
    for name in ["RUSTFLAGS", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER", "CARGO_BUILD_RUSTFLAGS"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Runs a command whose output is for the user to see.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", words(command));
    }
    Ok(())
}

/// Runs a command and gives its standard output; if it fails, what it says of that is the error.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    command.stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    let output = command.output().with_context(|| cannot_start(command))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}", words(command), complaint(&stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The line that says what went wrong: the first that calls itself an error (apt's begin with `E:`), or the
/// last one.
fn complaint(stderr: &str) -> &str {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines().find(|line| line.starts_with("error") || line.starts_with("E: "));
    error.or_else(|| lines().next_back()).unwrap_or("it does not say why")
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

/// A command as one would type it.
fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_uid_is_the_second_of_the_four() {
        assert_eq!(
            effective_uid("Name:\tx\nUid:\t1000\t0\t1000\t1000\nGid:\t5\t5\t5\t5\n"),
            Some(0)
        );
        assert_eq!(effective_uid("Uid:\t0\t1000\t0\t0\n"), Some(1000));
        assert_eq!(effective_uid("Name:\tx\n"), None);
    }

    #[test]
    fn a_failed_command_is_told_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo first >&2; echo no such package >&2; exit 3"]);
        let error = read(&mut command).expect_err("it exits with 3");
        assert!(error.to_string().ends_with("failed: no such package"), "{error}");
        assert_eq!(
            complaint("Updating\nerror: no network\nnote: try again\n"),
            "error: no network"
        );
        assert_eq!(complaint(""), "it does not say why");
    }

    #[test]
    fn programs_are_found_only_where_they_are() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }

    #[test]
    fn without_a_way_to_root_the_command_is_refused_by_name() {
        let error = Privilege::None.command("tracer").expect_err("no sudo");
        assert_eq!(error.to_string(), "tracer must run as root, and there is no sudo");
    }
}
