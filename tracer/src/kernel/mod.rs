//! The live kernel: BTF, offsets, attaching, the ring buffer, capabilities. Knows how a record comes out of
//! the kernel; what it means is `codec::ring`'s.

pub mod attach;
pub mod btf;
pub mod capability;
mod connects;
pub mod fields;
pub mod hz;
mod losses;
mod programs;

pub use attach::{Filter, KernelError, Settings, Tracer, preflight, with_causes};
pub use programs::has_programs;
