//! Outcomes from the kernel: where no request log exists, a connect is taken for a request, and what became of its
//! socket for its outcome.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::{Correlator, Seen};
use crate::model::{
    ConnectEnd, ConnectEvent, Outcome, Process, RequestEnded, RequestId, RequestStarted, Reuse,
    Symptom,
};

/// errno(3), as on every architecture that Linux has these numbers on but MIPS, Alpha, PA-RISC and SPARC.
mod errno {
    pub(super) const EPIPE: i32 = 32;
    pub(super) const ENETDOWN: i32 = 100;
    pub(super) const ENETUNREACH: i32 = 101;
    pub(super) const ECONNRESET: i32 = 104;
    pub(super) const ECONNREFUSED: i32 = 111;
    pub(super) const EHOSTDOWN: i32 = 112;
    pub(super) const EHOSTUNREACH: i32 = 113;
}

/// The connects that are open, and how many there were.
#[derive(Clone, Debug, Default)]
pub(super) struct Connects {
    pub(super) open: u32,
    /// Who made those that failed, until their request is settled.
    pub(super) by: HashMap<RequestId, Process, FixedState>,
    made: u64,
}

impl Correlator {
    /// A socket began to connect.
    pub(super) fn connect_began(&mut self, now: Seen) {
        self.connects.open = self.connects.open.saturating_add(1);
        self.ledger.open_at_once(now.time, self.connects.open);
    }

    /// A connect ended: as a request on a connection of its own. That a connection was reset later is the end of
    /// another request on it.
    pub(super) fn connect_ended(&mut self, now: Seen, connect: &ConnectEvent) {
        if !self.places.services.is_empty() && !self.is_service(connect.tuple.dst) {
            self.count("connects of others");
            return;
        }
        let id = RequestId(self.connects.made);
        self.connects.made += 1;
        let (reuse, symptom, errno) = match connect.end {
            ConnectEnd::Established => (Reuse::KeepAlive { nth: 0 }, None, 0),
            ConnectEnd::Failed { errno } => (Reuse::Fresh, Some(of_connect(errno)), errno),
            ConnectEnd::Reset { errno } => {
                (Reuse::KeepAlive { nth: 1 }, Some(Symptom::Reset), errno)
            }
        };
        if !matches!(connect.end, ConnectEnd::Reset { .. }) {
            self.connects.open = self.connects.open.saturating_sub(1);
        }
        let started = connect.started.unwrap_or(now.time);
        if connect.started.is_none() && !matches!(connect.end, ConnectEnd::Reset { .. }) {
            self.count("connects whose start was not seen");
        }
        let total = now.time.since(started);
        let outcome = match symptom {
            None => Outcome::Answered { status: 0 },
            Some(symptom) => {
                let errno = Some(errno).filter(|errno| *errno != 0);
                Outcome::Failed { symptom, errno, status: None }
            }
        };
        if symptom.is_some()
            && let Some(by) = &connect.by
        {
            self.connects.by.insert(id, by.clone());
        }
        let start = Seen { time: started, seq: now.seq };
        self.request_started(start, &RequestStarted { id, worker: 0 });
        self.request_ended(
            now,
            &RequestEnded {
                id,
                source: Some(connect.tuple.src),
                target: Some(connect.tuple.dst),
                reuse,
                outcome,
                resolution: None,
                connect: symptom.is_none().then_some(total),
                received: 0,
                total,
                pod: None,
            },
        );
    }
}

/// What a client saw of a connect that ended with this error. Without one its own process gave up.
fn of_connect(errno: i32) -> Symptom {
    match errno {
        errno::ECONNREFUSED => Symptom::Refused,
        errno::ENETUNREACH | errno::EHOSTUNREACH | errno::ENETDOWN | errno::EHOSTDOWN => {
            Symptom::Unreachable
        }
        errno::ECONNRESET | errno::EPIPE => Symptom::Reset,
        _ => Symptom::ConnectTimeout,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::correlate::Timeline;
    use crate::correlate::testing::{scene, timeline};
    use crate::model::{Event, EventKind, MonoNs, NetnsId, Tuple};

    const SECOND: u64 = 1_000_000_000;

    /// The timeline of connects from ports 40000 on, one a second, each of 100 ms.
    fn connects(ends: &[ConnectEnd]) -> Timeline {
        let mut scene = scene("0s pod a 10.0.1.7 added");
        let service = scene.header.services[0];
        for (nth, end) in (0_u16..).zip(ends) {
            let started = scene.header.began + Duration::from_secs(u64::from(nth));
            let src = format!("10.0.0.5:{}", 40_000 + nth).parse().unwrap();
            let connect = ConnectEvent {
                netns: NetnsId(1),
                tuple: Tuple::new(src, service),
                started: Some(started),
                end: *end,
                by: None,
            };
            let time = MonoNs(started.0 + SECOND / 10);
            scene.events.push(Event { time, kind: EventKind::Connect(connect) });
        }
        timeline(&scene)
    }

    #[test]
    fn a_connect_counts_as_a_request_with_what_its_socket_says() {
        let failed = |errno| ConnectEnd::Failed { errno };
        let timeline = connects(&[
            ConnectEnd::Established,
            failed(111),
            failed(113),
            failed(110),
            failed(0),
            failed(104),
        ]);
        assert_eq!((timeline.requests.ended, timeline.requests.failed), (6, 5));
        let symptoms: Vec<&str> =
            timeline.failures.iter().map(|failure| failure.symptom.name()).collect();
        assert_eq!(
            symptoms,
            ["refused", "unreachable", "connect-timeout", "connect-timeout", "reset"]
        );
        let took = timeline.failures.iter().map(|failure| failure.ended.total);
        assert!(took.clone().all(|took| took == Duration::from_millis(100)), "{took:?}");
    }

    #[test]
    fn a_reset_is_the_end_of_another_request_on_the_same_connection() {
        let timeline = connects(&[ConnectEnd::Established, ConnectEnd::Reset { errno: 104 }]);
        assert_eq!((timeline.requests.ended, timeline.requests.failed), (2, 1));
        assert_eq!(timeline.failures[0].symptom, Symptom::Reset);
        assert!(!timeline.failures[0].ended.reuse.is_connect());
    }

    #[test]
    fn connects_to_others_count_for_nothing() {
        let mut scene = scene("0s pod a 10.0.1.7 added");
        let tuple = Tuple::new("10.0.0.5:1".parse().unwrap(), "192.0.2.1:443".parse().unwrap());
        let end = ConnectEnd::Established;
        let connect = ConnectEvent { netns: NetnsId(1), tuple, started: None, end, by: None };
        let time = scene.header.began;
        scene.events.push(Event { time, kind: EventKind::Connect(connect) });
        assert_eq!(timeline(&scene).requests.ended, 0);
    }
}
