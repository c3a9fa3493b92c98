//! Why do requests still fail after a Kubernetes rollout has finished?
//!
//! The rooms of this crate and who may import whom are described in docs/ARCHITECTURE.md and checked by
//! `cargo xtask tidy`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod cluster;
pub mod codec;
pub mod commands;
pub mod correlate;
pub mod files;
pub mod infer;
pub mod kernel;
pub mod lab;
pub mod loadgen;
pub mod model;
pub mod monitor;
pub mod pipeline;
pub mod report;
pub mod stream;
pub mod sys;
pub mod verdict;
