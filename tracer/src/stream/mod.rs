//! Ordering of several sources and sequence numbers. Pure.
