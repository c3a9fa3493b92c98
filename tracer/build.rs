//! Puts the BPF object where the library embeds it: the one that `TRACER_BPF_OBJECT` names (by an absolute
//! path, as this runs in the package's own directory), or an empty stub.

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=TRACER_BPF_OBJECT");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let object = match env::var_os("TRACER_BPF_OBJECT").map(PathBuf::from) {
        Some(path) => {
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).unwrap_or_else(|error| {
                panic!("TRACER_BPF_OBJECT: cannot read {}: {error}", path.display())
            })
        }
        None => Vec::new(),
    };
    fs::write(out.join("programs.bpf.o"), object).expect("cargo makes OUT_DIR writable");
}
