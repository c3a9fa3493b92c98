//! `tracer attach`, against a scripted API server and kubelet: what a pod runs is a real process here, and exec is a
//! real WebSocket. No real cluster takes part.

#[expect(dead_code, unused_imports, reason = "what is left out here, another test binary uses")]
#[path = "../apiserver/mod.rs"]
mod apiserver;

mod ended;
mod exec;
mod kubelet;
mod refused;
mod rights;
mod several;
mod streamed;
mod world;
