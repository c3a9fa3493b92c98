//! Whether a process listens, as the kernel lists it: found out without sending it anything.

use std::collections::BTreeSet;
use std::fs;
use std::io;

/// The state of a listening socket in `/proc/PID/net/tcp` (`TCP_LISTEN` of include/net/tcp_states.h).
const LISTEN: &str = "0A";
/// That of a UDP socket that takes from anybody (`TCP_CLOSE`).
const UNCONNECTED: &str = "07";

/// Whether a TCP socket listens on `port` in the network namespace of this process.
///
/// # Errors
/// The list can't be read: the process is gone.
pub(crate) fn listens(pid: i32, port: u16) -> io::Result<bool> {
    has_socket(pid, ["tcp", "tcp6"], port, LISTEN)
}

/// Whether a UDP socket takes what comes to `port` in the network namespace of this process.
///
/// # Errors
/// The list can't be read: the process is gone.
pub(crate) fn takes_datagrams(pid: i32, port: u16) -> io::Result<bool> {
    has_socket(pid, ["udp", "udp6"], port, UNCONNECTED)
}

fn has_socket(pid: i32, [v4, v6]: [&str; 2], port: u16, state: &str) -> io::Result<bool> {
    for list in [v4, v6] {
        match fs::read_to_string(format!("/proc/{pid}/net/{list}")) {
            Ok(text) if is_listed(&text, port, state) => return Ok(true),
            Ok(_) => {}
            // A kernel without IPv6 has no such list.
            Err(error) if list == v6 && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether a list has a line such as `0: 00000000:1F90 00000000:0000 0A …` for this port and state.
fn is_listed(list: &str, port: u16, state: &str) -> bool {
    list.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local =
            words.next().and_then(|end| u16::from_str_radix(end.rsplit(':').next()?, 16).ok());
        local == Some(port) && words.nth(1) == Some(state)
    })
}

/// Whether each connection from these remote ports to `port` has bytes that the process has not read.
///
/// # Errors
/// The list can't be read: the process is gone.
pub(crate) fn has_unread(pid: i32, port: u16, remote: &BTreeSet<u16>) -> io::Result<bool> {
    let mut unread = BTreeSet::new();
    for list in ["tcp", "tcp6"] {
        match fs::read_to_string(format!("/proc/{pid}/net/{list}")) {
            Ok(text) => unread.extend(unread_from(&text, port)),
            Err(error) if list == "tcp6" && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(remote.is_subset(&unread))
}

/// The remote ports of those lines whose receive queue is not empty, such as
/// `1: 1401640A:1F90 1001640A:A3B4 01 00000000:00000005 …`.
fn unread_from(list: &str, port: u16) -> impl Iterator<Item = u16> {
    let hex = |text: &str| u16::from_str_radix(text.rsplit(':').next()?, 16).ok();
    list.lines().skip(1).filter_map(move |line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (hex(words.next()?)?, hex(words.next()?)?);
        let queued = words.nth(1)?.rsplit(':').next()?;
        let is_empty = queued.bytes().all(|digit| digit == b'0');
        (local == port && !is_empty).then_some(remote)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, UdpSocket};

    #[test]
    fn only_a_listener_on_the_port_counts() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                    0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
                    1: 1401640A:1F91 1001640A:A3B4 01 00000000:00000000 00:00000000 00000000     0\n";
        assert!(is_listed(list, 8080, LISTEN));
        assert!(!is_listed(list, 8081, LISTEN), "it is connected, not listening");
        assert!(!is_listed(list, 80, LISTEN));
        assert!(!is_listed("torn", 8080, LISTEN));
    }

    #[test]
    fn what_is_unread_is_told_by_its_remote_port() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                    0: 1401640A:1F90 1001640A:A3B4 01 00000000:00000005 00:00000000 00000000     0\n   \
                    1: 1401640A:1F90 1001640A:A3B5 01 00000003:00000000 00:00000000 00000000     0\n   \
                    2: 1401640A:1F91 1001640A:A3B6 01 00000000:00000005 00:00000000 00000000     0\n";
        assert_eq!(unread_from(list, 8080).collect::<Vec<_>>(), [0xA3B4]);
        assert_eq!(unread_from("torn", 8080).count(), 0);
    }

    #[test]
    fn the_kernel_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let port = listener.local_addr().expect("it is bound").port();
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        assert!(listens(own, port).expect("this process is there"));
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
        let udp = datagrams.local_addr().expect("it is bound").port();
        assert!(takes_datagrams(own, udp).expect("this process is there"));
        drop(datagrams);
        assert!(!takes_datagrams(own, udp).expect("this process is there"));
        drop(listener);
        assert!(!listens(own, port).expect("this process is there"));
    }
}
