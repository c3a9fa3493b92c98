//! The system's own tools, run as commands with their output checked.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::gate;

/// Why a tool did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not on this machine.
    #[error("`{tool}` is missing: install it with `apt-get install {package}`")]
    Missing {
        /// The program.
        tool: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// It is there, but could not be run.
    #[error("cannot run `{command}`")]
    Run {
        /// The command line.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ran and said no.
    #[error("`{command}` failed: {stderr}")]
    Failed {
        /// The command line.
        command: String,
        /// What it wrote to its standard error, or its exit status if that was nothing.
        stderr: String,
    },
}

/// A tool of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The program's name.
    pub name: &'static str,
    /// The Debian package that has it.
    pub package: &'static str,
}

/// iproute2's `ip`.
pub const IP: Tool = Tool { name: "ip", package: "iproute2" };
/// `iptables-restore`, whichever variant the system has chosen.
pub const IPTABLES_RESTORE: Tool = Tool { name: "iptables-restore", package: "iptables" };
/// The same for IPv6.
pub const IP6TABLES_RESTORE: Tool = Tool { name: "ip6tables-restore", package: "iptables" };
/// nftables' `nft`.
pub const NFT: Tool = Tool { name: "nft", package: "nftables" };
/// conntrack-tools' `conntrack`.
pub const CONNTRACK: Tool = Tool { name: "conntrack", package: "conntrack" };

impl Tool {
    /// Where it is: in `PATH`, or in the directories of root's programs, which a user's `PATH` lacks on
    /// Debian.
    ///
    /// # Errors
    /// [`ToolError::Missing`], with the package to install.
    pub fn find(self) -> Result<PathBuf, ToolError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
            .map(|directory| directory.join(self.name))
            .find(|candidate| candidate.is_file())
            .ok_or(ToolError::Missing { tool: self.name, package: self.package })
    }

    /// Runs it with `input` on its standard input, in the network namespace of the calling thread, and
    /// returns its standard output.
    ///
    /// # Errors
    /// [`ToolError`]: missing, not to be started, or ended with another status than 0.
    pub fn run<S: AsRef<OsStr>>(self, arguments: &[S], input: &str) -> Result<String, ToolError> {
        let path = self.find()?;
        let command = || {
            let words = arguments.iter().map(|argument| argument.as_ref().to_string_lossy());
            words.fold(self.name.to_owned(), |line, word| line + " " + &word)
        };
        let failed = |source| ToolError::Run { command: command(), source };
        let _pass = gate::pass();
        // In a process group of its own, a Ctrl-C on the terminal does not reach it: the program decides
        // when to stop, and what it cleans up with must not be interrupted.
        let mut child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let mut stdin = child.stdin.take().expect("stdin is piped");
        // The inputs are far smaller than a pipe, so this cannot block on a tool that blocks on its output.
        let written = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            let stderr = if stderr.is_empty() { output.status.to_string() } else { stderr };
            return Err(ToolError::Failed { command: command(), stderr });
        }
        written.map_err(failed)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let tool = Tool { name: "no-such-tool-here", package: "nosuch" };
        let error = tool.run::<&str>(&[], "").expect_err("there is no such tool");
        expect!["`no-such-tool-here` is missing: install it with `apt-get install nosuch`"]
            .assert_eq(&error.to_string());
    }

    #[test]
    fn a_failure_says_what_was_run_and_what_it_said() {
        let sh = Tool { name: "sh", package: "dash" };
        let error =
            sh.run(&["-c", "echo no; echo bad >&2; exit 3"], "").expect_err("it exits with 3");
        expect!["`sh -c echo no; echo bad >&2; exit 3` failed: bad"].assert_eq(&error.to_string());
    }

    #[test]
    fn input_reaches_the_tool_and_output_comes_back() {
        let cat = Tool { name: "cat", package: "coreutils" };
        assert_eq!(cat.run::<&str>(&[], "a\nb\n").expect("cat works"), "a\nb\n");
    }
}
