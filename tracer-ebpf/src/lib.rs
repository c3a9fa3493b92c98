//! The words that the BPF programs and user space share: record layouts, the table of kernel fields,
//! capacities. `no_std`, no logic.
#![no_std]
