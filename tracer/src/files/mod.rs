//! Trace files on disk.
