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
    /// What the app does on SIGTERM.
    pub on_sigterm: OnSigterm,
}

/// What an app does on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSigterm {
    /// It exits at once; connections break off.
    Exit,
    /// It stops accepting, answers what is in flight, and exits.
    Drain,
    /// It has no handler: as PID 1 it lives until SIGKILL (pid_namespaces(7)).
    Nothing,
}

/// How long the preStop hook of those setups that have one sleeps.
const SLEEP: Option<Duration> = Some(Duration::from_secs(5));

/// Every setup.
pub const SETUPS: [Setup; 6] = [
    Setup {
        name: "naive",
        about: "no readiness probe: ready as soon as it runs; the app exits at once on SIGTERM",
        readiness: false,
        prestop: None,
        on_sigterm: OnSigterm::Exit,
    },
    USUAL,
    Setup {
        name: "readiness-drain",
        about: "a readiness probe; on SIGTERM the app stops accepting, answers what is in flight, exits",
        on_sigterm: OnSigterm::Drain,
        ..USUAL
    },
    Setup {
        name: "readiness-prestop",
        about: "a readiness probe; SIGTERM comes after a preStop sleep of 5 s, then the app exits at once",
        prestop: SLEEP,
        ..USUAL
    },
    Setup {
        name: "readiness-prestop-drain",
        about: "a readiness probe; SIGTERM comes after a preStop sleep of 5 s, then the app drains",
        prestop: SLEEP,
        on_sigterm: OnSigterm::Drain,
        ..USUAL
    },
    Setup {
        name: "readiness-no-handler",
        about: "a readiness probe; the app has no SIGTERM handler and lives until SIGKILL",
        on_sigterm: OnSigterm::Nothing,
        ..USUAL
    },
];

/// The setup that a lab has if nothing is said.
pub const USUAL: Setup = Setup {
    name: "readiness",
    about: "a readiness probe; the app exits at once on SIGTERM",
    readiness: true,
    prestop: None,
    on_sigterm: OnSigterm::Exit,
};

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
        assert_eq!(USUAL.name.parse(), Ok(USUAL));
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        let error = "readyness".parse::<Setup>().expect_err("misspelt");
        expect!["no setup is called `readyness`; there are: naive, readiness, readiness-drain, readiness-prestop, readiness-prestop-drain, readiness-no-handler"]
            .assert_eq(&error.to_string());
    }

    /// A setup's name says what it does.
    #[test]
    fn names_keep_their_word() {
        for setup in SETUPS {
            let says = |word: &str| setup.name.contains(word);
            assert_eq!(setup.readiness, says("readiness"), "{}", setup.name);
            assert_eq!(setup.prestop.is_some(), says("prestop"), "{}", setup.name);
            assert_eq!(setup.on_sigterm == OnSigterm::Drain, says("drain"), "{}", setup.name);
            assert_eq!(
                setup.on_sigterm == OnSigterm::Nothing,
                says("no-handler"),
                "{}",
                setup.name
            );
        }
    }
}
