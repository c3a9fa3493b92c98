//! The base of the edges: clocks, namespaces, processes, sysctls, and the guards that put things back.

pub mod cgroup;
pub mod clock;
pub mod conntrack;
mod gate;
pub mod netns;
pub mod output;
pub mod owner;
pub mod process;
pub mod signals;
pub mod stop;
pub mod sysctl;
pub mod tool;
