//! Standard output, and whether anybody reads it.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Whether nobody reads standard output any more: the pipe's other end was closed (poll(2): POLLERR on the end of a
/// pipe that is written to, POLLHUP on a socket or a terminal).
pub fn is_abandoned() -> bool {
    is_closed_at_the_other_end(std::io::stdout())
}

fn is_closed_at_the_other_end(output: impl AsFd) -> bool {
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    // Both are told without being asked for.
    let mut looked_at = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let told = poll(&mut looked_at, PollTimeout::ZERO).is_ok();
    told && looked_at[0].revents().is_some_and(|events| events.intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_closed_when_its_reader_is_gone() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        assert!(!is_closed_at_the_other_end(&writer));
        drop(reader);
        assert!(is_closed_at_the_other_end(&writer));
    }

    #[test]
    fn a_file_is_never_closed() {
        assert!(!is_closed_at_the_other_end(tempfile::tempfile().expect("a file")));
    }
}
