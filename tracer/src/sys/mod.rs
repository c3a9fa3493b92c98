//! The base of the edges: clocks, namespaces, processes, sysctls, and the guards that put things back.

pub mod clock;
pub mod stop;
