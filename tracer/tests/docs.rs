//! Every `tracer` command line in README and docs is one that the program understands.

#[path = "../../xtask/src/tidy/commands.rs"]
mod commands;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn documents() -> Vec<PathBuf> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a workspace");
    let docs = root.join("docs").read_dir().expect("docs/ is there");
    let pages = docs.map(|entry| entry.expect("docs/ can be read").path());
    let mut documents: Vec<PathBuf> =
        pages.filter(|page| page.extension().is_some_and(|ending| ending == "md")).collect();
    documents.push(root.join("README.md"));
    documents.sort();
    documents
}

#[test]
fn every_command_line_in_the_documents_is_accepted() {
    let mut accepted = 0;
    let mut refused = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a document can be read");
        for command in commands::commands(&text) {
            let Some(arguments) = command.arguments_of("tracer") else { continue };
            match tracer::cli::accepts(arguments) {
                Ok(()) => accepted += 1,
                Err(error) => {
                    let (file, line) = (document.display(), command.line);
                    refused.push(format!("{file}:{line}: tracer {}: {error}", arguments.join(" ")));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(accepted >= 6, "README shows each subcommand; found only {accepted} command lines");
}

/// README's verdict is what the command above it prints: each piece between two `…` stands in it, in this order.
#[test]
fn the_verdict_in_the_readme_is_the_one_that_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).expect("it is there");
    let (_, block) = readme.split_once("```text\n").expect("a block with the verdict");
    let (block, _) = block.split_once("```").expect("the block ends");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_tracer"));
    replay.args(["replay", "examples/kubernetes-1.36-readiness"]).current_dir(&root);
    let output = replay.output().expect("tracer starts");
    assert_eq!(output.status.code(), Some(0));
    let printed = String::from_utf8(output.stdout).expect("reports are UTF-8");
    let mut rest = printed.as_str();
    for piece in block.split("\n…\n").map(str::trim_end).filter(|piece| !piece.is_empty()) {
        let at = rest.find(piece).unwrap_or_else(|| panic!("not printed:\n{piece}\n\n{printed}"));
        rest = &rest[at + piece.len()..];
    }
}

#[test]
fn a_command_line_with_an_unknown_word_is_refused() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(tracer::cli::accepts(&words("doctor --no-such-option")).is_err());
    assert!(tracer::cli::accepts(&words("no-such-command")).is_err());
    assert_eq!(tracer::cli::accepts(&words("lab --help")), Ok(()));
}
