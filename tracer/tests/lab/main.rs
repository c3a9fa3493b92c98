//! The lab, for real: needs root. Without it each test says that it was left out.

mod owner;
mod process;
mod rollout;
mod stands;
mod truth;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tracer::lab::{Lab, LabSettings};
use tracer::model::{ClusterEvent, Event, EventKind};
use tracer::sys::netns;
use tracer::sys::stop::Stop;

fn is_left_out(name: &str) -> bool {
    let left_out = !nix::unistd::geteuid().is_root();
    if left_out {
        eprintln!("left out: {name}: needs root");
    }
    left_out
}

fn settings() -> LabSettings {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tracer"));
    LabSettings { program, pod_start_delay: Duration::from_millis(300), ..LabSettings::default() }
}

fn names_of(index: u8) -> Vec<String> {
    let prefix = format!("tracer-lab{index}-");
    netns::names().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

fn processes_of(index: u8) -> Vec<i32> {
    names_of(index)
        .iter()
        .flat_map(|name| netns::processes(name).expect("the name is there"))
        .collect()
}

/// One request from the client's pod; the answer's body.
fn ask(lab: &Lab) -> std::io::Result<String> {
    let service = lab.service();
    let answer = lab.client_netns().run(move || {
        let mut stream = TcpStream::connect_timeout(&service, Duration::from_secs(3))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    answer.expect("the client's namespace is there")
}

/// A rollout's events as words, and how long it took until complete and until the last old pod was gone.
fn roll(lab: &Lab) -> (Vec<String>, Vec<Event>) {
    let events = Mutex::new(Vec::new());
    let sink = |event| events.lock().expect("nobody panics").push(event);
    lab.rollout(&sink, &Stop::default()).expect("a rollout can be done");
    let events = events.into_inner().expect("nobody panics");
    let words = events.iter().filter_map(|event| match &event.kind {
        EventKind::Cluster { change: ClusterEvent::Pod { name, change, .. }, .. } => {
            Some(format!("{name} {change:?}"))
        }
        EventKind::Cluster { change: ClusterEvent::Rollout { change, .. }, .. } => {
            Some(format!("{change:?}"))
        }
        _ => None,
    });
    (words.collect(), events)
}
