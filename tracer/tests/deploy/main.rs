//! deploy/, held against the API's own types, against kustomize, and against what the programs ask for. No cluster
//! takes part: what only a cluster can tell (admission, scheduling) is not tested here.

mod kustomize;
mod manifests;
mod round_trip;
mod watched;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The folder with the manifests.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .canonicalize()
        .expect("deploy/ is there")
}

/// Every file below deploy/ with this ending.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![deploy()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|of| of == ending) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// The documents of a YAML text.
fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).expect("it is YAML")
}

fn read(path: &Path) -> Vec<Value> {
    documents(&fs::read_to_string(path).expect("a file can be read"))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
