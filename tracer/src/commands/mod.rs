//! One module a subcommand: its options and its `run`. Here the rooms are put together.

pub mod doctor;
pub mod judging;
pub mod lab;
pub mod load;
pub mod record;
pub mod replay;
pub mod serve;
pub mod tracing;
pub mod units;
