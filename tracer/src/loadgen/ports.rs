//! Source ports that some workers choose themselves instead of leaving them to the kernel.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use socket2::{SockAddr, Socket};

/// Which workers choose which ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPorts {
    /// These, by number; the others leave it to the kernel.
    pub workers: BTreeSet<u32>,
    /// Out of these, in ascending order, all workers together.
    pub range: RangeInclusive<u16>,
    /// Whether to begin anew behind the last one. Else a worker that finds none left asks no more.
    pub again: bool,
}

/// How far the workers have come through their ports.
pub(super) struct Ports {
    settings: OwnPorts,
    taken: AtomicU32,
}

impl Ports {
    pub(super) fn new(settings: OwnPorts) -> Ports {
        Ports { settings, taken: AtomicU32::new(0) }
    }

    /// Whether this worker chooses its ports.
    pub(super) fn are_of(&self, worker: u32) -> bool {
        self.settings.workers.contains(&worker)
    }

    /// Whether there is no further port.
    pub(super) fn are_used_up(&self) -> bool {
        !self.settings.again && self.taken.load(Ordering::Relaxed) >= self.count()
    }

    fn count(&self) -> u32 {
        self.settings.range.len() as u32
    }

    fn next(&self) -> Option<u16> {
        // Workers of one client are tasks of one thread: nobody takes one in between.
        if self.count() == 0 || self.are_used_up() {
            return None;
        }
        let taken = self.taken.load(Ordering::Relaxed);
        self.taken.store((taken + 1) % self.turn(), Ordering::Relaxed);
        Some(self.settings.range.start() + (taken % self.count()) as u16)
    }

    /// Where the count begins anew.
    fn turn(&self) -> u32 {
        if self.settings.again { self.count() } else { u32::MAX }
    }

    /// Gives a socket the next port that nobody has.
    ///
    /// # Errors
    /// EADDRNOTAVAIL, as connect(2) has it, if there is none; else what bind(2) says.
    pub(super) fn bind(&self, socket: &Socket, target: SocketAddr) -> io::Result<()> {
        let any = match target {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        for _ in 0..self.count() {
            let Some(port) = self.next() else { break };
            match socket.bind(&SockAddr::from(SocketAddr::new(any, port))) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
        Err(Errno::EADDRNOTAVAIL.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(range: RangeInclusive<u16>, again: bool) -> Ports {
        Ports::new(OwnPorts { workers: BTreeSet::from([1]), range, again })
    }

    fn taken(ports: &Ports, times: usize) -> Vec<Option<u16>> {
        (0..times).map(|_| ports.next()).collect()
    }

    #[test]
    fn each_port_is_taken_once_and_then_there_is_none() {
        let once = ports(40_000..=40_001, false);
        assert!(!once.are_used_up() && once.are_of(1) && !once.are_of(0));
        assert_eq!(taken(&once, 3), [Some(40_000), Some(40_001), None]);
        assert!(once.are_used_up());
    }

    #[test]
    fn or_all_again_and_again() {
        let again = ports(65_534..=65_535, true);
        let all = [Some(65_534), Some(65_535), Some(65_534), Some(65_535), Some(65_534)];
        assert_eq!(taken(&again, 5), all);
        assert!(!again.are_used_up());
    }

    #[test]
    fn an_empty_range_has_none() {
        #[expect(clippy::reversed_empty_ranges, reason = "this is what is tested")]
        let none = ports(2..=1, true);
        assert_eq!(none.next(), None);
    }

    #[test]
    fn a_port_that_somebody_has_is_passed_over() {
        let somebody = std::net::TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let target = somebody.local_addr().expect("it has one");
        let taken = target.port();
        let socket =
            || Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        let alone = ports(taken..=taken, true);
        let error = alone.bind(&socket(), target).expect_err("nobody else may have it");
        assert_eq!(error.raw_os_error(), Some(Errno::EADDRNOTAVAIL as i32));
    }
}
