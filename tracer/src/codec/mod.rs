//! Bytes to events and back: ring records, the trace file, captures, and the texts that people have:
//! conntrack's, kubectl's, and logs of requests; and events to the forms that other programs read. Pure: no
//! I/O, no clock.

pub mod conntrack;
pub mod json_lines;
mod lines;
pub mod pcap;
pub mod pcapng_out;
pub mod rebuild;
pub mod requests;
pub mod ring;
pub mod stamp;
pub mod trace;
pub mod unread;
pub mod watch;

#[cfg(test)]
mod tests;

/// What a reader of bytes as they come has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// The next thing that was read.
    Item(T),
    /// Nothing whole is left: feed more bytes, or close.
    More,
    /// There is nothing more.
    End,
}
