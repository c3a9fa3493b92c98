//! Debian's package tools, asked so that nothing is ever removed and nobody is asked anything.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::say;
use crate::process::{self, Privilege};

/// Whether this machine has apt.
pub(crate) fn exists() -> bool {
    ["apt-get", "apt-cache", "dpkg"].iter().all(|program| process::find(program).is_some())
}

/// Installs packages. Fails rather than removes another package.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let attempt = || -> Result<()> {
        let mut command = Privilege::of_this_account()?.command("apt-get")?;
        command
            .args(["install", "--yes", "--quiet", "--no-remove", "--no-install-recommends"])
            .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        process::read(&mut command).map(drop)
    };
    // The lists may know nothing yet (a fresh container) or name versions that the mirror no longer has.
    if attempt().is_err() {
        update()?;
        attempt()?;
    }
    Ok(())
}

fn update() -> Result<()> {
    say("apt-get update");
    let mut command = Privilege::of_this_account()?.command("apt-get")?;
    command.args(["update", "--quiet", "-o", "DPkg::Lock::Timeout=300"]);
    process::read(&mut command).map(drop)
}

/// Package lists to download by: the system's, or where they don't do and this account can't refresh them,
/// lists of this project's own.
#[derive(Debug)]
pub(crate) struct Lists {
    options: Vec<String>,
}

impl Lists {
    /// The system's lists as they are.
    pub(crate) fn of_the_system() -> Lists {
        Lists { options: Vec::new() }
    }

    /// Fresh lists: the system's after an update, or private ones in `folder`.
    pub(crate) fn fresh(folder: &Path) -> Result<Lists> {
        if Privilege::of_this_account()? != Privilege::None && update().is_ok() {
            return Ok(Lists::of_the_system());
        }
        say("fetching package lists of our own");
        let (lists, cache) = (folder.join("lists"), folder.join("cache"));
        for partial in [lists.join("partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&partial)
                .with_context(|| format!("making {}", partial.display()))?;
        }
        let own = Lists {
            options: vec![
                format!("Dir::State::lists={}", lists.display()),
                format!("Dir::Cache={}", cache.display()),
            ],
        };
        process::read(own.command("apt-get").args(["update", "--quiet"]))?;
        Ok(own)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LC_ALL", "C");
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// What a package depends on, by name.
    pub(crate) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let mut command = self.command("apt-cache");
        command.args(["depends", "--important", package]);
        let text = process::read(&mut command).with_context(|| {
            format!("no package {package} in the lists of this machine's sources")
        })?;
        Ok(parse_dependencies(&text))
    }

    /// What installing a package would bring along: itself and the dependencies that this machine lacks.
    pub(crate) fn would_install(&self, package: &str) -> Result<Vec<String>> {
        let mut command = self.command("apt-get");
        command.args(["install", "--simulate", "--no-install-recommends", package]);
        Ok(parse_simulation(&process::read(&mut command)?))
    }

    /// Downloads packages into a folder.
    pub(crate) fn download(&self, packages: &[String], folder: &Path) -> Result<Vec<PathBuf>> {
        let mut command = self.command("apt-get");
        command.args(["download", "--quiet"]).args(packages).current_dir(folder);
        if Privilege::of_this_account()? == Privilege::Root {
            // Its own download user can't write into our folder, and apt warns of that.
            command.args(["-o", "APT::Sandbox::User=root"]);
        }
        process::read(&mut command)?;
        let mut files = Vec::new();
        for entry in folder.read_dir().with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "deb") {
                files.push(path);
            }
        }
        if files.len() < packages.len() {
            bail!("apt-get download brought {} of {} packages", files.len(), packages.len());
        }
        files.sort();
        Ok(files)
    }
}

/// Unpacks a package into a folder, without installing it.
pub(crate) fn unpack(package: &Path, folder: &Path) -> Result<()> {
    process::read(Command::new("dpkg").arg("-x").arg(package).arg(folder)).map(drop)
}

/// `apt-cache depends`: an indented line for each; alternatives have a bar, virtual packages brackets.
fn parse_dependencies(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.trim().trim_start_matches('|').strip_prefix("Depends: "))
        .filter(|name| !name.starts_with('<'))
        .map(str::to_owned)
        .collect()
}

/// `apt-get install --simulate`: `Inst NAME (VERSION …)`.
fn parse_simulation(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_without_virtual_packages_and_other_relations() {
        let text = "rustc-web\n  Depends: libc6\n |Depends: gcc\n  Depends: <libc-dev>\n    libc6-dev\n  \
                    Conflicts: rustc\n";
        assert_eq!(parse_dependencies(text), ["libc6", "gcc"]);
    }

    #[test]
    fn a_simulation_names_what_would_be_installed_and_nothing_else() {
        let text = "Reading package lists...\nInst libz3-4 (4.8.12-3.1 Debian:12.11/stable [amd64])\n\
                    Inst libllvm22 (1:22.1.8 Debian [amd64])\nConf libllvm22 (1:22.1.8 Debian [amd64])\n";
        assert_eq!(parse_simulation(text), ["libz3-4", "libllvm22"]);
    }
}
