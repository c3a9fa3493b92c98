//! The pod setups: what a pod template says of readiness and of its end.

use std::time::Duration;

/// A pod setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in half a sentence.
    pub about: &'static str,
    /// Whether a readiness probe decides that a pod is ready; without one it is as soon as it runs.
    pub readiness: bool,
    /// How long the preStop hook sleeps, if there is one.
    pub prestop: Option<Duration>,
}

/// Every setup.
pub const SETUPS: [Setup; 2] = [
    Setup {
        name: "readiness",
        about: "a readiness probe; the app exits at once on SIGTERM",
        readiness: true,
        prestop: None,
    },
    Setup {
        name: "readiness-prestop",
        about: "a readiness probe; SIGTERM comes after a preStop sleep of 5 s",
        readiness: true,
        prestop: Some(Duration::from_secs(5)),
    },
];

/// There is no setup of this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no setup is called `{name}`; there are: {}", SETUPS.map(|setup| setup.name).join(", "))]
pub struct UnknownSetup {
    /// The name.
    pub name: String,
}

impl std::str::FromStr for Setup {
    type Err = UnknownSetup;

    fn from_str(name: &str) -> Result<Setup, UnknownSetup> {
        let setup = SETUPS.into_iter().find(|setup| setup.name == name);
        setup.ok_or_else(|| UnknownSetup { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn every_setup_is_found_by_its_name() {
        for setup in SETUPS {
            assert_eq!(setup.name.parse(), Ok(setup));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let error = "readyness".parse::<Setup>().expect_err("misspelt");
        expect!["no setup is called `readyness`; there are: readiness, readiness-prestop"]
            .assert_eq(&error.to_string());
    }
}
