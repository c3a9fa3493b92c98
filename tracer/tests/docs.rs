//! Every `tracer` command line in README and docs is one that the program understands.

#[path = "../../xtask/src/tidy/commands.rs"]
mod commands;

use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn a_command_line_with_an_unknown_word_is_refused() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(tracer::cli::accepts(&words("doctor --no-such-option")).is_err());
    assert!(tracer::cli::accepts(&words("no-such-command")).is_err());
    assert_eq!(tracer::cli::accepts(&words("lab --help")), Ok(()));
}
