//! One module a subcommand: its options and its `run`. Here the rooms are put together.

pub mod attach;
pub mod clients;
pub mod completions;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod judging;
pub mod lab;
pub mod live;
pub mod load;
pub mod man;
pub mod monitor;
pub mod node;
mod output;
pub mod record;
pub mod replay;
pub mod screen;
pub mod serve;
pub mod tracing;
pub mod units;
pub mod watching;
