//! The live kernel: BTF, offsets, attaching, the ring buffer, capabilities. Knows how a record comes out of
//! the kernel; what it means is `codec::ring`'s.

pub mod attach;
pub mod btf;
pub mod capability;
pub mod fields;
pub mod hz;
mod losses;

pub use attach::{KernelError, Settings, Tracer, has_programs, with_causes};
