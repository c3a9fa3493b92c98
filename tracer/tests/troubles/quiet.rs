//! A trace in which nothing goes wrong: half a minute of answered requests after a rollout. Whole, its verdict
//! is `not-observed`; with any part missing nobody can know.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use tracer::files::{Existing, TraceWriter};
use tracer::model::{
    ClockAnchor, ClusterEvent, Event, EventKind, Hook, HookStatus, MonoNs, Origin, Outcome,
    PodChange, RequestEnded, RequestId, RequestStarted, Reuse, RolloutChange, TraceHeader, WallNs,
};

const SERVICE: &str = "10.96.0.20:80";
const BEGAN: MonoNs = MonoNs(1_000_000_000_000);

/// The trace's bytes, and how many of them come before its events.
pub(crate) fn trace() -> (Vec<u8>, usize) {
    let folder = TempDir::new().expect("a folder can be made");
    let path = folder.path().join("quiet.trace");
    let mut writer =
        TraceWriter::create(&path, &header(), Existing::Keep).expect("it can be written");
    let header = fs::read(&path).expect("it was made").len();
    for (number, event) in events().iter().enumerate() {
        writer.append(event).expect("it can be written");
        if number % 100 == 99 {
            // Else all of it would be one frame.
            writer.flush().expect("it can be written");
        }
    }
    writer.finish().expect("it can be written");
    (fs::read(&path).expect("it was made"), header)
}

fn service() -> SocketAddr {
    SERVICE.parse().expect("an address")
}

fn header() -> TraceHeader {
    let attached = |hook| HookStatus { hook, attached: true, note: None };
    TraceHeader {
        tracer: "0.1.0".to_owned(),
        origin: Origin::Record { command: "tracer record".to_owned() },
        kernel: "6.18.0 x86_64".to_owned(),
        node: "n1".to_owned(),
        hz: Some(250),
        began: BEGAN,
        anchor: ClockAnchor { mono: BEGAN, wall: WallNs(1_796_000_000_000_000_000), error_ns: 50 },
        hooks: Hook::ALL.into_iter().map(attached).collect(),
        netns: Vec::new(),
        sysctls: Vec::new(),
        services: vec![service()],
        drop_reasons: BTreeMap::new(),
        notes: Vec::new(),
    }
}

fn events() -> Vec<Event> {
    let at = |ms: u64, kind| Event { time: BEGAN + Duration::from_millis(ms), kind };
    let cluster = |ms: u64, change| {
        let since = BEGAN + Duration::from_millis(ms);
        Event { time: since, kind: EventKind::Cluster { change, since } }
    };
    let rollout = |change| ClusterEvent::Rollout { deployment: "web".to_owned(), change };
    let pod = ClusterEvent::Pod {
        name: "web-a".to_owned(),
        app: "web".to_owned(),
        node: "n1".to_owned(),
        address: Some([10, 0, 1, 7].into()),
        change: PodChange::Added,
    };
    let mut events = vec![
        cluster(0, pod),
        cluster(10, rollout(RolloutChange::Started)),
        cluster(1000, rollout(RolloutChange::Finished)),
    ];
    for id in 0..300 {
        let began = 1100 + id * 100;
        let started = RequestStarted { id: RequestId(id), worker: 0 };
        events.push(at(began, EventKind::RequestStarted(started)));
        let ended = RequestEnded {
            id: RequestId(id),
            source: None,
            target: Some(service()),
            reuse: Reuse::Fresh,
            outcome: Outcome::Answered { status: 200 },
            resolution: None,
            connect: Some(Duration::from_millis(1)),
            received: 100,
            total: Duration::from_millis(50),
            pod: Some("web-a".to_owned()),
        };
        events.push(at(began + 50, EventKind::RequestEnded(ended)));
    }
    events
}
