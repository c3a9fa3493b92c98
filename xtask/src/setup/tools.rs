//! The programs that the lab and the tests run, and the C compiler that Rust links with.

use anyhow::{Result, bail};

use super::{Need, apt, say};
use crate::process::{self, Privilege};

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tool {
    /// The program.
    pub(crate) program: &'static str,
    /// The package.
    pub(crate) package: &'static str,
    /// What it is needed for.
    need: Need,
}

const TOOLS: [Tool; 6] = [
    Tool { program: "cc", package: "gcc", need: Need::Build },
    Tool { program: "iptables-restore", package: "iptables", need: Need::Lab },
    Tool { program: "ip", package: "iproute2", need: Need::Lab },
    Tool { program: "conntrack", package: "conntrack", need: Need::Lab },
    Tool { program: "nft", package: "nftables", need: Need::Everything },
    Tool { program: "tshark", package: "tshark", need: Need::Everything },
];

fn needed(need: Need) -> impl Iterator<Item = Tool> {
    TOOLS.into_iter().filter(move |tool| tool.need <= need)
}

/// The names of what is needed.
pub(crate) fn names(need: Need) -> Vec<&'static str> {
    needed(need).map(|tool| tool.program).collect()
}

/// What is needed and not there.
pub(crate) fn missing(need: Need) -> Vec<Tool> {
    needed(need).filter(|tool| process::find(tool.program).is_none()).collect()
}

/// Installs it.
pub(crate) fn install(missing: &[Tool]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    let programs: Vec<&str> = missing.iter().map(|tool| tool.program).collect();
    let (programs, by_hand) = (programs.join(", "), packages.join(" "));
    if !apt::exists() {
        bail!("missing: {programs}; this is no Debian or Ubuntu, so install by hand: {by_hand}");
    }
    if Privilege::of_this_account()? == Privilege::None {
        bail!(
            "missing: {programs}; not root and no sudo, so install as root: apt-get install {by_hand}"
        );
    }
    say(&format!("apt-get install {by_hand}"));
    if let Err(error) = apt::install(&packages) {
        bail!("missing: {programs}; install by hand: apt-get install {by_hand} ({error:#})");
    }
    match missing.iter().find(|tool| process::find(tool.program).is_none()) {
        Some(tool) => bail!("package {} brought no {}", tool.package, tool.program),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn building_needs_no_network_tools_and_the_lab_none_of_the_tests() {
        assert_eq!(names(Need::Build), ["cc"]);
        let lab = ["cc", "iptables-restore", "ip", "conntrack"];
        assert_eq!(names(Need::Lab), lab);
        assert_eq!(names(Need::Everything), [&lab[..], &["nft", "tshark"]].concat());
    }
}
