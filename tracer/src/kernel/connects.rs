//! Connects, put together from their socket's changes of state. The local port is chosen after the socket leaves
//! CLOSE, and the process is known only then: so both ends are paired by the socket itself.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::codec::ring::SocketDetail;
use crate::model::{
    ConnectEnd, ConnectEvent, Event, EventKind, MonoNs, Process, SockState, TcpStateEvent,
};

/// Connects that are open at once, at most. One whose end was lost would stay for ever; it goes when its memory is
/// needed, or another socket comes to its address.
const MOST: usize = 1 << 16;

/// The connects that are open.
#[derive(Debug, Default)]
pub(super) struct Connects {
    open: HashMap<u64, Open, FixedState>,
}

#[derive(Debug)]
struct Open {
    started: MonoNs,
    by: Option<Process>,
}

impl Connects {
    /// What a change of a socket's state means for its connect: its end, if it is one.
    pub(super) fn take(
        &mut self,
        time: MonoNs,
        change: &TcpStateEvent,
        detail: SocketDetail,
    ) -> Option<Event> {
        let errno = detail.errno;
        let end = match (change.old, change.new) {
            (SockState::Close, SockState::SynSent) => {
                if self.open.len() >= MOST {
                    self.forget_the_older_half();
                }
                self.open.insert(detail.socket, Open { started: time, by: detail.by });
                return None;
            }
            (SockState::SynSent, SockState::Established) => ConnectEnd::Established,
            (SockState::SynSent, SockState::Close) => ConnectEnd::Failed { errno },
            // Without an error its own process threw it away.
            (SockState::Established, SockState::Close) if errno != 0 => ConnectEnd::Reset { errno },
            _ => return None,
        };
        let open = self.open.remove(&detail.socket);
        let (started, by) = open.map_or((None, None), |open| (Some(open.started), open.by));
        let (netns, tuple) = (change.netns, change.tuple);
        let connect = ConnectEvent { netns, tuple, started, end, by };
        Some(Event { time, kind: EventKind::Connect(connect) })
    }

    fn forget_the_older_half(&mut self) {
        let mut times: Vec<MonoNs> = self.open.values().map(|open| open.started).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;
        self.open.retain(|_, open| open.started > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NetnsId, Tuple};

    /// Takes a change of a socket, from `10.0.0.5:port`.
    fn take(
        connects: &mut Connects,
        time: u64,
        (old, new): (SockState, SockState),
        (socket, port, errno): (u64, u16, i32),
    ) -> Option<ConnectEvent> {
        let src = format!("10.0.0.5:{port}").parse().unwrap();
        let tuple = Tuple::new(src, "10.96.0.1:80".parse().unwrap());
        let change = TcpStateEvent { netns: NetnsId(1), tuple, old, new };
        let by = Process { pid: 7, name: format!("process {socket}"), cgroup: 3 };
        let by = (old == SockState::Close).then_some(by);
        let event = connects.take(MonoNs(time), &change, SocketDetail { socket, errno, by })?;
        assert_eq!(event.time, MonoNs(time));
        match event.kind {
            EventKind::Connect(connect) => Some(connect),
            other => panic!("{other:?}"),
        }
    }

    const CONNECT: (SockState, SockState) = (SockState::Close, SockState::SynSent);
    const OPEN: (SockState, SockState) = (SockState::SynSent, SockState::Established);
    const FAIL: (SockState, SockState) = (SockState::SynSent, SockState::Close);
    const END: (SockState, SockState) = (SockState::Established, SockState::Close);

    #[test]
    fn the_ends_of_a_connect_are_paired_by_their_socket() {
        let mut connects = Connects::default();
        assert_eq!(take(&mut connects, 10, CONNECT, (1, 0, 0)), None);
        assert_eq!(take(&mut connects, 11, CONNECT, (2, 0, 0)), None);
        let first = take(&mut connects, 20, OPEN, (1, 40_001, 0)).unwrap();
        assert_eq!((first.started, first.end), (Some(MonoNs(10)), ConnectEnd::Established));
        assert_eq!(first.by.unwrap().name, "process 1");
        let second = take(&mut connects, 30, FAIL, (2, 40_003, 110)).unwrap();
        assert_eq!(
            (second.started, second.end),
            (Some(MonoNs(11)), ConnectEnd::Failed { errno: 110 })
        );
        assert_eq!(second.by.unwrap().name, "process 2");
        assert_eq!(second.tuple.src.port(), 40_003);
        assert!(connects.open.is_empty());
    }

    #[test]
    fn an_end_without_a_beginning_says_so() {
        let mut connects = Connects::default();
        let end = take(&mut connects, 20, FAIL, (1, 40_001, 0)).unwrap();
        assert_eq!((end.started, end.by), (None, None));
    }

    #[test]
    fn a_reset_is_told_and_a_connection_that_its_process_threw_away_is_not() {
        let mut connects = Connects::default();
        assert_eq!(take(&mut connects, 20, END, (1, 40_001, 0)), None);
        let reset = take(&mut connects, 20, END, (1, 40_001, 104)).unwrap();
        assert_eq!(reset.end, ConnectEnd::Reset { errno: 104 });
    }

    #[test]
    fn connects_whose_ends_were_lost_do_not_pile_up() {
        let mut connects = Connects::default();
        for socket in 0..3 * MOST as u64 {
            take(&mut connects, socket, CONNECT, (socket, 0, 0));
            assert!(connects.open.len() <= MOST);
        }
        // The latest are still there.
        let last = 3 * MOST as u64 - 1;
        assert!(take(&mut connects, last + 1, OPEN, (last, 40_001, 0)).unwrap().started.is_some());
    }
}
