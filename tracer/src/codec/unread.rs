//! What could not be read, counted by the reason.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// So many different reasons are told apart; a text of another kind must not fill the memory with them.
const REASONS: usize = 50;

/// What stands for all reasons past [`REASONS`].
const OTHERS: &str = "other reasons";

/// What could not be read of a text: how often for which reason, and the line at which it was met first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    reasons: BTreeMap<Cow<'static, str>, Passed>,
}

/// How often something could not be read, and where first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// How often.
    pub count: u64,
    /// The number of the first line that shows it, from 1.
    pub line: u64,
}

impl Unread {
    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.reasons.is_empty()
    }

    /// How often something was not.
    pub fn total(&self) -> u64 {
        self.reasons.values().map(|passed| passed.count).sum()
    }

    /// The reasons, sorted.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, Passed)> {
        self.reasons.iter().map(|(reason, passed)| (reason.as_ref(), *passed))
    }

    /// Counts something that could not be read at this line.
    pub fn count(&mut self, reason: impl Into<Cow<'static, str>>, line: u64) {
        let mut reason = reason.into();
        if self.reasons.len() >= REASONS && !self.reasons.contains_key(&reason) {
            reason = Cow::Borrowed(OTHERS);
        }
        self.reasons.entry(reason).or_insert(Passed { count: 0, line }).count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_with_their_first_line_and_never_without_bound() {
        let mut unread = Unread::default();
        unread.count("no protocol", 3);
        unread.count("no protocol", 7);
        for number in 0..1_000 {
            unread.count(format!("unknown wording {number}"), 8);
        }
        let known = unread.reasons().find(|(reason, _)| *reason == "no protocol").unwrap();
        assert_eq!(known.1, Passed { count: 2, line: 3 });
        assert_eq!(unread.reasons().count(), REASONS + 1);
        assert_eq!(unread.total(), 1_002);
    }
}
