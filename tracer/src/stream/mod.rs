//! One stream of many sources: events in the order of their times, numbered. Pure: it is told the time.
//!
//! Each source is nearly in order by itself, but a ring buffer is drained in turns, CPU by CPU, and a watch has
//! its own pace. So events wait for a window before they are passed on. What comes later than that is kept, at
//! the place where it came, and the stream says so.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::Duration;

use crate::model::{Event, EventKind, LossSource, MonoNs, Seq};

/// Puts events in the order of their times and numbers them. Equal times stay in the order of their arrival.
///
/// Memory: the events of one window.
#[derive(Debug)]
pub struct Ordering {
    window: Duration,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// The waiting events, each at its slot, and the slots that are free.
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    arrivals: u64,
    next: Seq,
    /// The latest time that was passed on.
    passed: MonoNs,
}

impl Ordering {
    /// Lets events wait for `window`: the longest that a source can be behind another.
    pub fn new(window: Duration) -> Ordering {
        Ordering {
            window,
            waiting: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            arrivals: 0,
            next: Seq(0),
            passed: MonoNs(0),
        }
    }

    /// Takes an event.
    pub fn push(&mut self, event: Event) {
        let time = event.time;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.events[slot] = Some(event);
                slot
            }
            None => {
                self.events.push(Some(event));
                self.events.len() - 1
            }
        };
        self.waiting.push(Reverse(Waiting { time, arrival: self.arrivals, slot }));
        self.arrivals += 1;
    }

    /// Passes on everything older than the window, as seen from `now`.
    ///
    /// What is older than an event passed on before goes first, behind one [`EventKind::Lost`] from
    /// [`LossSource::Ordering`] that counts it: nothing is lost but its place.
    pub fn release(&mut self, now: MonoNs, sink: &mut dyn FnMut(Seq, Event)) {
        let window = self.window;
        // Not `now - window`: that stops at 0, and events of the clock's first moments would go at once.
        self.pass(|time| time + window < now, sink);
    }

    /// Passes on everything, at the end.
    pub fn flush(&mut self, sink: &mut dyn FnMut(Seq, Event)) {
        self.pass(|_| true, sink);
    }

    /// How many events are waiting.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn pass(&mut self, is_due: impl Fn(MonoNs) -> bool, sink: &mut dyn FnMut(Seq, Event)) {
        let passed = self.passed;
        let late: Vec<Event> =
            std::iter::from_fn(|| self.pop_if(|time| time < passed && is_due(time))).collect();
        if let Some(earliest) = late.first() {
            let lost = EventKind::Lost {
                source: LossSource::Ordering,
                count: late.len() as u64,
                since: earliest.time,
            };
            self.number(Event { time: passed, kind: lost }, sink);
        }
        for event in late {
            self.number(event, sink);
        }
        while let Some(event) = self.pop_if(&is_due) {
            self.passed = event.time;
            self.number(event, sink);
        }
    }

    /// The earliest event, if its time is as asked.
    fn pop_if(&mut self, condition: impl Fn(MonoNs) -> bool) -> Option<Event> {
        let earliest = self.waiting.peek_mut()?;
        if !condition(earliest.0.time) {
            return None;
        }
        let Reverse(Waiting { slot, .. }) = PeekMut::pop(earliest);
        self.free.push(slot);
        self.events[slot].take()
    }

    fn number(&mut self, event: Event, sink: &mut dyn FnMut(Seq, Event)) {
        let seq = self.next;
        self.next = Seq(seq.0 + 1);
        sink(seq, event);
    }
}

/// Where an event waits. Ordered by time, and then by arrival.
///
/// The heap holds these and not the events: it moves what it holds about at each step, and an event is large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    time: MonoNs,
    arrival: u64,
    slot: usize,
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;
    use crate::model::{RequestId, RequestStarted};

    /// An event that can be told from all others by its number.
    fn event(time: u64, number: u64) -> Event {
        let started = RequestStarted { id: RequestId(number), worker: 0 };
        Event { time: MonoNs(time), kind: EventKind::RequestStarted(started) }
    }

    fn show(seq: Seq, event: &Event) -> String {
        match &event.kind {
            EventKind::RequestStarted(started) => {
                format!("{seq} at {}: event {}", event.time.0, started.id.0)
            }
            EventKind::Lost { source: LossSource::Ordering, count, since } => {
                format!("{seq} at {}: {count} out of order since {}", event.time.0, since.0)
            }
            other => panic!("nobody pushed {other:?}"),
        }
    }

    /// Does `steps`, one a line: `push TIME`, `release NOW`, `flush`. Events are numbered as pushed. The window is 10.
    fn check(steps: &str, expected: Expect) {
        let mut ordering = Ordering::new(Duration::from_nanos(10));
        let mut pushed = 0;
        let mut passed = Vec::new();
        for step in steps.lines().map(str::trim).filter(|step| !step.is_empty()) {
            let mut sink = |seq, event: Event| passed.push(show(seq, &event));
            match step.split_once(' ') {
                Some(("push", time)) => {
                    ordering.push(event(time.parse().unwrap(), pushed));
                    pushed += 1;
                }
                Some(("release", now)) => ordering.release(MonoNs(now.parse().unwrap()), &mut sink),
                _ => ordering.flush(&mut sink),
            }
        }
        expected.assert_eq(&(passed.join("\n") + "\n"));
    }

    #[test]
    fn events_of_two_sources_come_out_in_the_order_of_their_times() {
        check(
            "push 1
             push 5
             push 3
             push 4
             flush",
            expect![[r#"
                #0 at 1: event 0
                #1 at 3: event 2
                #2 at 4: event 3
                #3 at 5: event 1
            "#]],
        );
    }

    #[test]
    fn equal_times_stay_in_the_order_of_arrival() {
        check(
            "push 7
             push 7
             push 6
             push 7
             flush",
            expect![[r#"
                #0 at 6: event 2
                #1 at 7: event 0
                #2 at 7: event 1
                #3 at 7: event 3
            "#]],
        );
    }

    #[test]
    fn nothing_is_passed_on_before_its_window_is_over() {
        check(
            "push 0
             push 5
             release 10
             push 1
             release 15
             release 16",
            expect![[r#"
                #0 at 0: event 0
                #1 at 1: event 2
                #2 at 5: event 1
            "#]],
        );
    }

    #[test]
    fn what_comes_too_late_is_kept_and_said() {
        check(
            "push 20
             release 31
             push 5
             push 4
             push 21
             push 20
             release 32",
            expect![[r#"
                #0 at 20: event 0
                #1 at 20: 2 out of order since 4
                #2 at 4: event 2
                #3 at 5: event 1
                #4 at 20: event 4
                #5 at 21: event 3
            "#]],
        );
    }

    proptest! {
        /// Sources that are behind by less than the window: everything in order, nothing said to be late.
        #[test]
        fn a_window_that_is_long_enough_orders_everything(
            steps in proptest::collection::vec((0..20_u64, 0..100_u64), 0..200),
        ) {
            let mut ordering = Ordering::new(Duration::from_nanos(100));
            let mut passed = Vec::new();
            let mut now = 0;
            for (number, (pass_of_time, behind)) in steps.iter().enumerate() {
                now += pass_of_time;
                ordering.push(event(now.saturating_sub(*behind), number as u64));
                ordering.release(MonoNs(now), &mut |seq, event| passed.push((seq, event)));
            }
            ordering.flush(&mut |seq, event| passed.push((seq, event)));
            prop_assert_eq!(passed.len(), steps.len());
            prop_assert!(passed.windows(2).all(|pair| pair[0].1.time <= pair[1].1.time));
            prop_assert!(passed.iter().enumerate().all(|(place, (seq, _))| seq.0 == place as u64));
        }

        /// Whatever the times: each event comes out once, those before a release are not held back, late ones are
        /// counted, and the rest is in order.
        #[test]
        fn every_event_is_passed_on_once_and_each_late_one_is_counted(
            steps in proptest::collection::vec((0..50_u64, 0..500_u64, any::<bool>()), 0..200),
        ) {
            let mut ordering = Ordering::new(Duration::from_nanos(20));
            let mut passed = Vec::new();
            let mut now = 0;
            for (number, (pass_of_time, behind, release)) in steps.iter().enumerate() {
                now += pass_of_time;
                ordering.push(event(now.saturating_sub(*behind), number as u64));
                if *release {
                    ordering.release(MonoNs(now), &mut |seq, event| passed.push((seq, event)));
                    let waiting = ordering.waiting.peek();
                    prop_assert!(waiting.is_none_or(|least| least.0.time.0 + 20 >= now));
                }
            }
            ordering.flush(&mut |seq, event| passed.push((seq, event)));
            let (mut counted, mut late, mut latest) = (0, 0, MonoNs(0));
            let mut numbers = Vec::new();
            for (place, (seq, event)) in passed.iter().enumerate() {
                prop_assert_eq!(seq.0, place as u64);
                match &event.kind {
                    EventKind::Lost { count, .. } => counted += count,
                    EventKind::RequestStarted(started) => numbers.push(started.id.0),
                    other => panic!("nobody pushed {other:?}"),
                }
                if event.time < latest {
                    late += 1;
                }
                latest = latest.max(event.time);
            }
            numbers.sort_unstable();
            prop_assert!(numbers.into_iter().eq(0..steps.len() as u64));
            prop_assert_eq!(counted, late);
        }
    }
}
