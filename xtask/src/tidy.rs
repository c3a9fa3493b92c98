//! `cargo xtask tidy`: the rules of docs/ARCHITECTURE.md that a search can check. A rule is a function over
//! text that gives what breaks it; here the files are found and the rules put together.

mod commands;
mod docs;
mod paths;
mod rooms;
mod source;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use self::paths::SourceFile;
use crate::workspace::Workspace;

/// Options of `cargo xtask tidy`
#[derive(Debug, Args)]
pub(crate) struct Options {}

/// What breaks a rule, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The line, counted from 1; 0 for the whole file.
    line: usize,
    /// What is wrong, and with which rule.
    text: String,
}

impl Violation {
    fn new(line: usize, text: impl Into<String>) -> Violation {
        Violation { line, text: text.into() }
    }
}

/// Runs it.
pub(crate) fn run(workspace: &Workspace, _options: &Options) -> Result<ExitCode> {
    let root = workspace.root();
    let mut files = 0;
    let mut violations = Vec::new();
    for path in files_below(root)? {
        // A file that is no text is no source either.
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        files += 1;
        let found = if path.ends_with(".rs") {
            let (found, question) = check_source(&path, &text);
            question.into_iter().for_each(|question| println!("question: {path}: {question}"));
            found
        } else if path.ends_with(".md") {
            docs::unknown_commands(&text)
        } else {
            Vec::new()
        };
        let found = found.into_iter().chain(source::machine_paths(&text));
        violations.extend(found.map(|violation| (path.clone(), violation)));
    }
    for (path, Violation { line, text }) in &violations {
        println!("{path}:{line}: {text}");
    }
    println!("tidy: {files} files, {} violations", violations.len());
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// All rules about a Rust file: what is wrong with it, and whether its length is a question.
fn check_source(path: &str, text: &str) -> (Vec<Violation>, Option<String>) {
    let file = match SourceFile::parse(path, text) {
        Ok(file) => file,
        Err(violation) => return (vec![violation], None),
    };
    let (too_long, question) = source::length(&file);
    let found = [
        rooms::wrong_imports(&file),
        rooms::impurities(&file),
        source::unsafety(&file),
        source::left_overs(&file),
        source::missing_doc(&file),
        too_long,
    ];
    (found.concat(), question)
}

/// The files of the repository, relative to its root, sorted; without what is built or fetched.
fn files_below(root: &Path) -> Result<Vec<String>> {
    const NOT_OURS: [&str; 3] = [".git", ".toolchain", "target"];
    let mut folders = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let reading = || format!("reading {}", folder.display());
        for entry in folder.read_dir().with_context(reading)? {
            let path = entry.with_context(reading)?.path();
            let is_ours =
                path.file_name().is_some_and(|n| NOT_OURS.iter().all(|other| n != *other));
            if path.is_dir() && is_ours && !path.is_symlink() {
                folders.push(path);
            } else if path.is_file() && is_ours {
                let relative = path.strip_prefix(root).context("a file below the root")?;
                files.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_asked() {
        let text = "use crate::kernel::Ring;\nuse std::fs;\nfn f() { unsafe { todo!() } }\n";
        let (found, question) = check_source("tracer/src/verdict/rule.rs", text);
        let lines: Vec<String> = found.iter().map(|v| format!("{}: {}", v.line, v.text)).collect();
        expect_test::expect![[r#"
            1: `verdict` must not import `kernel`: it may import model, correlate
            2: `verdict` is pure: no std::fs
            3: `unsafe` has no place here: only in tracer-ebpf's memory, maps and hooks
            3: `todo!` is left over
            1: a module starts with `//!`: what it is for"#]]
        .assert_eq(&lines.join("\n"));
        assert_eq!(question, None);
    }
}
