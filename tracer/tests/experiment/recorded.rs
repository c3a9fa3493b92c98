//! `record` beside the lab, told of nothing but the Service's address: it counts the connects that the client logs.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{Run, is_left_out};

/// `record`, watching what the Service of any lab of this machine may be called.
struct Recording {
    child: Child,
    errors: BufReader<std::process::ChildStderr>,
}

impl Recording {
    fn start() -> Recording {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tracer"));
        command.args(["record", "--format", "json"]);
        for lab in 0..16 {
            command.args(["--service", &format!("10.{}.96.10:80", 100 + lab)]);
        }
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tracer starts");
        let mut errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("it says that it traces");
        assert!(line.starts_with("tracer: tracing 10.100.96.10:80, "), "{line}");
        Recording { child, errors }
    }

    fn end(mut self) -> Value {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process's number"));
        kill(pid, Signal::SIGINT).expect("it was started here");
        let mut said = String::new();
        let out = self.child.stdout.as_mut().expect("it is piped");
        out.read_to_string(&mut said).expect("the report is UTF-8");
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).expect("notes are UTF-8");
        let status = self.child.wait().expect("it was started here");
        // Nobody told of pods.
        assert_eq!(status.code(), Some(3), "{errors}");
        serde_json::from_str(&said).expect("the report is JSON")
    }
}

/// The client's ends of the failed requests with these symptoms, for a client at this address.
fn failed(report: &Value, symptoms: &[&str], client: &str) -> Vec<(String, String)> {
    let rows = report["failed"].as_array().expect("a list").iter();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let mut failed: Vec<(String, String)> = rows
        .map(|row| (text(row, "source"), text(row, "symptom")))
        .filter(|(source, symptom)| {
            source.starts_with(client) && symptoms.contains(&symptom.as_str())
        })
        .collect();
    failed.sort();
    failed
}

#[test]
fn sockets_tell_of_connects_what_the_clients_log_tells() {
    if is_left_out("sockets_tell_of_connects_what_the_clients_log_tells") {
        return;
    }
    let recording = Recording::start();
    let run = Run::new(&[]);
    let heard = recording.end();
    let logged = &run.report;
    // Other tests have labs of their own beside this one.
    let source = logged["failed"][0]["source"].as_str().expect("an address");
    let client = &source[..=source.rfind(':').expect("a port")];
    let told = ["connect-timeout", "refused"];
    let of_log = failed(logged, &told, client);
    assert!(of_log.len() > 10, "{of_log:?}");
    assert_eq!(failed(&heard, &told, client), of_log);
    // Answers that were cut short, no socket tells.
    assert_eq!(failed(&heard, &["closed", "wrong-answer"], ""), []);
    let total = |report: &Value| report["requests"]["total"].as_u64().expect("a count");
    assert!(total(&heard) >= total(logged), "{} {}", heard["requests"], logged["requests"]);
    let notes = heard["notes"].to_string();
    assert!(notes.contains("there is no request log"), "{notes}");
}
