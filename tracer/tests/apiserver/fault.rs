//! What can be made to go wrong.

use super::{State, Verb};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An answer with this HTTP status instead of the right one.
    Status {
        /// 410, 429, 500, …
        code: u16,
        /// The header Retry-After, in seconds.
        retry_after: Option<u64>,
    },
    /// A watch says ERROR with code 410, and ends: the version that it goes on from is no longer known.
    Gone,
    /// A watch sends half of its next event, and its connection breaks. Of a list: half of its answer comes.
    HalfLine,
    /// A watch sends half of its next event, and then ends as if that were all.
    HalfLineAndEnd,
    /// The connection breaks; of a request that is no watch before anything is answered.
    Disconnect,
    /// A watch ends, as it does when its time is up.
    End,
    /// Nothing more comes, and the connection stays.
    Stall,
    /// A watch sends a line that is no JSON.
    Garbage,
}

/// A fault that waits for its request.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) verb: Verb,
    pub(super) resource: String,
    pub(super) fault: Fault,
    pub(super) times: usize,
}

impl State {
    /// The fault that a request of this kind meets now.
    pub(super) fn take_fault(&mut self, verb: Verb, resource: &str) -> Option<Fault> {
        self.take_fault_if(verb, resource, |_| true)
    }

    /// The same, of those that are as asked.
    pub(super) fn take_fault_if(
        &mut self,
        verb: Verb,
        resource: &str,
        is_wanted: impl Fn(&Fault) -> bool,
    ) -> Option<Fault> {
        let index = self.faults.iter().position(|due| {
            due.verb == verb && due.resource == resource && is_wanted(&due.fault)
        })?;
        let due = &mut self.faults[index];
        // Without end, if it was ordered so.
        due.times -= usize::from(due.times != usize::MAX);
        let fault = due.fault.clone();
        if due.times == 0 {
            self.faults.remove(index);
        }
        Some(fault)
    }
}
