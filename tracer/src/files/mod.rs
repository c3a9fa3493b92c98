//! Files on disk. Traces: written as events come, read in constant memory; their bytes are those of
//! [`codec::trace`](crate::codec::trace). What others have made is recognised by its content ([`Input`]) and read
//! in constant memory too.

mod capture;
mod input;
mod reader;
mod text;
mod writer;

use std::io;
use std::path::PathBuf;

pub use capture::{CaptureReader, Piece};
pub use input::{Input, Kind};
pub use reader::TraceReader;
pub use text::{TextReader, sysctls};
pub use writer::{Existing, TraceWriter, check, create};

use crate::codec::pcap::PcapError;
use crate::codec::trace::{HeaderError, TooLarge};

/// What can go wrong with a trace file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be opened.
    #[error("cannot open {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It can't be created.
    #[error("cannot create {path}")]
    Create {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// There is a file of this name.
    #[error("{path} exists; remove it, choose another name, or replace it with --force")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is a file of this name that is no trace: it is not replaced, even if asked.
    #[error("{path} exists and is not a trace of tracer, so it is not replaced")]
    NotReplaced {
        /// The file.
        path: PathBuf,
    },
    /// It can't be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It can't be written: the disk is full, most often. What was written before stays readable.
    #[error("cannot write {path}, which ends after {events} events")]
    Write {
        /// The file.
        path: PathBuf,
        /// How many events it holds.
        events: u64,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// An event can't be written.
    #[error("cannot write to {path}")]
    Event {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: TooLarge,
    },
    /// What was read is not a trace that this version reads.
    #[error("{path} {why}")]
    Header {
        /// The file.
        path: PathBuf,
        /// Why; the end of a sentence that the path begins.
        why: HeaderError,
    },
    /// It is a capture that can't be read.
    #[error("{path} {why}")]
    Capture {
        /// The file.
        path: PathBuf,
        /// Why; the end of a sentence that the path begins.
        why: PcapError,
    },
    /// There is nothing in it.
    #[error("{path} is empty")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is of no kind that is known here.
    #[error("{path} is of no kind that can be replayed")]
    Unknown {
        /// The file.
        path: PathBuf,
    },
}

#[cfg(test)]
mod tests;
