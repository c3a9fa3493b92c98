//! What libtest prints, counted: passed, failed, and what tests say that they left out.

use std::collections::BTreeSet;
use std::fmt;

/// The line on which a test says that it, or a part of it, was left out: `left out: NAME: REASON`.
const LEFT_OUT: &str = "left out: ";

/// The name and reason, if the line is such a line.
pub(crate) fn left_out(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix(LEFT_OUT)
}

/// How the tests went.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    left_out: Vec<String>,
    failures: Vec<String>,
}

impl Tally {
    /// Counts something that was left out; the same line once.
    pub(crate) fn leave_out(&mut self, line: &str) {
        if !self.left_out.iter().any(|known| known == line) {
            self.left_out.push(line.to_owned());
        }
    }

    /// Counts a test that is not libtest's.
    pub(crate) fn add(&mut self, name: &str, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => {
                self.failed += 1;
                self.failures.push(format!("{name}: {error:#}"));
            }
        }
    }

    /// What was left out.
    pub(crate) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// What failed.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Whether nothing failed, and anything ran at all.
    pub(crate) fn is_good(&self) -> bool {
        self.failed == 0 && self.failures.is_empty() && self.passed > 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (passed, failed, skipped) = (self.passed, self.failed, self.left_out.len());
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Where in libtest's output a line stands.
#[derive(Debug, Default, PartialEq, Eq)]
enum Section {
    /// Names and results.
    #[default]
    Results,
    /// Under `successes:`, the output of tests that passed.
    Successes {
        /// The test whose output is being shown.
        test: Option<String>,
    },
    /// Under `failures:`.
    Failures,
}

/// Reads libtest's output line by line.
#[derive(Debug, Default)]
pub(crate) struct Libtest {
    section: Section,
    tally: Tally,
    /// The names of tests that passed.
    passed: Vec<String>,
    /// Those of them that said themselves that they were left out.
    left_out: BTreeSet<String>,
}

impl Libtest {
    /// Takes a line; whether it is worth showing. The output of passing tests is not.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        match line {
            "successes:" => self.section = Section::Successes { test: None },
            "failures:" => self.section = Section::Failures,
            _ if line.starts_with("test result: ") => {
                self.section = Section::Results;
                let count = |what| count(line, what);
                self.tally.passed += count(" passed");
                self.tally.failed += count(" failed");
            }
            _ => self.read_within(line),
        }
        !matches!(self.section, Section::Successes { .. })
    }

    fn read_within(&mut self, line: &str) {
        if let Some(name) = failed_test(line) {
            self.tally.failures.push(name.to_owned());
        }
        if let Some((name, reason)) = ignored_test(line) {
            self.tally.leave_out(&format!("{name}: {reason}"));
        }
        if let Some(name) = passed_test(line) {
            self.passed.push(name.to_owned());
        }
        if let Section::Successes { test } = &mut self.section {
            let shown =
                line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
            if let Some(name) = shown {
                *test = Some(name.to_owned());
            } else if left_out(line).is_some() {
                self.left_out.extend(test.clone());
            }
        }
        if let Some(line) = left_out(line) {
            self.tally.leave_out(line);
        }
    }

    /// Takes what tests wrote past libtest, straight to standard error: there the line's name is all that says
    /// whose it is.
    pub(crate) fn read_directly(&mut self, left_out: &str) {
        self.tally.leave_out(left_out);
        let name = left_out.split(": ").next().unwrap_or_default();
        let is_it = |test: &&String| *test == name || test.ends_with(&format!("::{name}"));
        self.left_out.extend(self.passed.iter().find(is_it).cloned());
    }

    /// The sum over all test programs.
    pub(crate) fn finish(self) -> Tally {
        let mut tally = self.tally;
        tally.passed = tally.passed.saturating_sub(self.left_out.len() as u64);
        tally
    }
}

/// `test NAME ... FAILED`
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// `test NAME ... ok`
fn passed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... ok")
}

/// `test NAME ... ignored, REASON`
fn ignored_test(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let reason = result.strip_prefix("ignored")?.trim_start_matches(", ");
    Some((name, if reason.is_empty() { "ignored" } else { reason }))
}

/// The number before a word of `test result: ok. 3 passed; 0 failed; …`.
fn count(line: &str, what: &str) -> u64 {
    let before = line.split(what).next().filter(|before| before.len() < line.len());
    before.and_then(|before| before.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> (Tally, Vec<&str>) {
        let mut libtest = Libtest::default();
        let shown = text.lines().map(str::trim_start).filter(|line| libtest.read(line)).collect();
        (libtest.finish(), shown)
    }

    #[test]
    fn a_test_that_left_itself_out_is_skipped_and_not_passed() {
        let (tally, shown) = tally(
            "running 3 tests
             test a ... ok
             test b ... ok
             test c ... ok
             successes:
             ---- a stdout ----
             chatter
             ---- b stdout ----
             left out: b: needs CAP_BPF
             left out: b, second half: needs CAP_BPF
             successes:
                 a
                 b
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        );
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 2 skipped");
        assert_eq!(tally.left_out()[0], "b: needs CAP_BPF");
        assert!(tally.is_good());
        assert!(!shown.contains(&"chatter"));
    }

    #[test]
    fn failures_of_every_test_program_are_summed_and_named() {
        let (tally, shown) = tally(
            "test a ... FAILED
             failures:
             ---- a stdout ----
             assertion failed
             test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
             test x ... ok
             test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out",
        );
        assert_eq!(tally.to_string(), "5 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failures(), ["a"]);
        assert!(!tally.is_good());
        assert!(shown.contains(&"assertion failed"));
    }

    #[test]
    fn a_test_that_says_so_past_libtest_is_skipped_too() {
        let mut libtest = Libtest::default();
        for line in
            ["test hooks::xmit ... ok", "test other ... ok", "test result: ok. 2 passed; 0 failed;"]
        {
            libtest.read(line);
        }
        libtest.read_directly("xmit: no BPF programs in this build");
        libtest.read_directly("something of no test: no reason");
        assert_eq!(libtest.finish().to_string(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn an_ignored_test_is_named() {
        let (tally, _) = tally("test slow ... ignored, takes an hour");
        assert_eq!(tally.left_out(), ["slow: takes an hour"]);
        assert!(!tally.is_good(), "nothing ran");
    }
}
