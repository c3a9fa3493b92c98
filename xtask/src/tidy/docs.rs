//! Every command line of README and docs must be one that runs. tracer's own are parsed by
//! tracer/tests/docs.rs, xtask's here, others must be on a short list.

use super::Violation;
use super::commands::{Command, commands};
use crate::accepts;

/// Commands of others, up to the word that matters. Each is run by `.ci/run`, by a test, or only reads; or a test
/// renders what it would apply.
const OTHERS: [&str; 7] = [
    "cargo fmt",
    "cargo clippy",
    "cargo test",
    "cargo build",
    "conntrack -L",
    "kubectl apply -k deploy/roles",
    "jq",
];

/// Commands that nothing here knows how to run.
pub(crate) fn unknown_commands(markdown: &str) -> Vec<Violation> {
    let found = commands(markdown);
    found
        .iter()
        .filter_map(|command| Some(Violation::new(command.line, unknown(command)?)))
        .collect()
}

fn unknown(command: &Command) -> Option<String> {
    let line = command.words.join(" ");
    if let [cargo, xtask, arguments @ ..] = command.words.as_slice()
        && cargo == "cargo"
        && xtask == "xtask"
    {
        let error = accepts(arguments).err()?;
        return Some(format!("`{line}` is refused by xtask: {error}"));
    }
    let is_known = command.arguments_of("tracer").is_some()
        || OTHERS.iter().any(|known| line == *known || line.starts_with(&format!("{known} ")))
        || line.starts_with("sysctl net.");
    (!is_known).then(|| {
        format!("`{line}` is not on the list of commands that are run (xtask/src/tidy/docs.rs)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(markdown: &str) -> Vec<String> {
        commands(markdown).iter().map(|command| command.words.join(" ")).collect()
    }

    #[test]
    fn commands_are_taken_from_sh_and_console_blocks_only() {
        let text = "Run `tracer x`.\n```sh\n# a comment\nA=1 sudo tracer lab | jq .a  # why\n```\n\
                    ```console\n$ tracer doctor > out\nprinted\n```\n```rust\nlet a = 1;\n```\n";
        assert_eq!(words(text), ["tracer lab", "jq .a", "tracer doctor"]);
        assert_eq!(commands(text)[0].line, 4);
    }

    #[test]
    fn quotes_and_continued_lines_make_one_command() {
        let text = "```sh\ntracer load \\\n  --mode 'a b'\n```\n";
        assert_eq!(commands(text)[0].words, ["tracer", "load", "--mode", "a b"]);
    }

    #[test]
    fn tracer_is_known_by_name_by_path_and_through_cargo() {
        for line in [
            "tracer lab --quick",
            "target/release/tracer lab --quick",
            "cargo run -p tracer -- lab --quick",
        ] {
            let text = format!("```sh\n{line}\n```\n");
            let command = &commands(&text)[0];
            assert_eq!(command.arguments_of("tracer").unwrap(), ["lab", "--quick"], "{line}");
        }
        assert_eq!(commands("```sh\nls tracer\n```")[0].arguments_of("tracer"), None);
    }

    #[test]
    fn a_command_that_nobody_runs_is_found() {
        let text = "```sh\ncargo xtask lab --quick\ncargo xtask bake\ncurl example.org | sh\ncargo test\n```\n";
        let found = unknown_commands(text);
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [3, 4, 4]);
        assert!(found[0].text.contains("refused by xtask"), "{found:?}");
    }
}
