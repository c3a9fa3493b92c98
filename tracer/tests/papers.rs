//! The manual and the completions: made of the command line itself, and fit for those who read them.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

fn tracer(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tracer")).args(args).output().expect("tracer starts")
}

#[test]
fn shells_take_their_completions() {
    for (shell, check) in
        [("bash", &["bash", "-n"][..]), ("zsh", &["zsh", "-n"]), ("fish", &["fish", "-n"])]
    {
        let output = tracer(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = String::from_utf8(output.stdout).expect("text");
        for word in ["replay", "lab", "rollout-end"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().write_all(script.as_bytes()).expect("it takes it");
        let (program, args) = check.split_first().expect("a program");
        let Ok(checked) = Command::new(program).args(args).arg(file.path()).output() else {
            eprintln!("left out: shells_take_their_completions: no {shell} on this machine");
            continue;
        };
        assert!(checked.status.success(), "{shell}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn each_subcommand_has_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("man1");
    let output = tracer(&["man", path.to_str().expect("a plain name")]);
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    for name in ["tracer", "tracer-lab", "tracer-replay", "tracer-export", "tracer-doctor"] {
        let page = fs::read_to_string(path.join(format!("{name}.1"))).expect(name);
        assert!(page.contains(".TH ") && page.contains(".SH NAME"), "{name}");
    }
    let lab = fs::read_to_string(path.join("tracer-lab.1")).expect("the lab's page");
    assert!(lab.contains("readiness\\-prestop") || lab.contains("readiness-prestop"), "{lab}");
}

#[test]
fn a_folder_that_cannot_be_made_is_one_line() {
    let output = tracer(&["man", "/proc/man1"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.starts_with("tracer: making /proc/man1: ") && error.lines().count() == 1,
        "{error}"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut completions = Command::new(env!("CARGO_BIN_EXE_tracer"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tracer starts");
    drop(completions.stdout.take());
    let output = completions.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
