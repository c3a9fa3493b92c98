//! The BPF programs: BTF tracepoints that record SYNs, SYN-ACKs, RSTs, ICMP errors and client sockets of
//! watched Services, with the conntrack entry that each packet carries.
//!
//! `cargo xtask build` builds them with
//!
//! ```text
//! RUSTC_BOOTSTRAP=1 cargo build --profile bpf -p tracer-ebpf --features bpf --bin tracer-ebpf \
//!     -Z build-std=core --target bpfel-unknown-none
//! ```
//!
//! where `RUSTC` has rust-src beside it and bpf-linker is in `PATH`; the object is then
//! target/bpfel-unknown-none/bpf/tracer-ebpf, and `TRACER_BPF_OBJECT` tells tracer's build of it.
#![no_std]
#![no_main]

mod hooks;
mod maps;
mod memory;
mod packet;

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
