//! The whole way from events to a report: of small traces, and of anything at all.

mod anything;
mod view;
