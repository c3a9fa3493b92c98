//! Whether a process listens, as the kernel lists it: found out without sending it anything.

use std::fs;
use std::io;

/// The state of a listening socket in `/proc/PID/net/tcp` (`TCP_LISTEN` of include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// Whether a TCP socket listens on `port` in the network namespace of this process.
///
/// # Errors
/// The list can't be read: the process is gone.
pub(crate) fn listens(pid: i32, port: u16) -> io::Result<bool> {
    for list in ["tcp", "tcp6"] {
        match fs::read_to_string(format!("/proc/{pid}/net/{list}")) {
            Ok(text) if has_listener(&text, port) => return Ok(true),
            Ok(_) => {}
            // A kernel without IPv6 has no such list.
            Err(error) if list == "tcp6" && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether a list has a line such as `0: 00000000:1F90 00000000:0000 0A …` for this port.
fn has_listener(list: &str, port: u16) -> bool {
    list.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local =
            words.next().and_then(|end| u16::from_str_radix(end.rsplit(':').next()?, 16).ok());
        local == Some(port) && words.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn only_a_listener_on_the_port_counts() {
        let list = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n   \
                    0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
                    1: 1401640A:1F91 1001640A:A3B4 01 00000000:00000000 00:00000000 00000000     0\n";
        assert!(has_listener(list, 8080));
        assert!(!has_listener(list, 8081), "it is connected, not listening");
        assert!(!has_listener(list, 80));
        assert!(!has_listener("torn", 8080));
    }

    #[test]
    fn the_kernel_is_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
        let port = listener.local_addr().expect("it is bound").port();
        let own = i32::try_from(std::process::id()).expect("a pid fits");
        assert!(listens(own, port).expect("this process is there"));
        drop(listener);
        assert!(!listens(own, port).expect("this process is there"));
    }
}
