//! `tracer` and a cluster's API, as a scripted server plays it.

#[expect(dead_code, unused_imports, reason = "what is left out here, another test binary uses")]
#[path = "../apiserver/mod.rs"]
mod apiserver;

mod faults;
mod recorded;
mod scripted;
mod watching;
