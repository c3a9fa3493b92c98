//! The live kernel: BTF, offsets, attaching, the ring buffer, capabilities.
