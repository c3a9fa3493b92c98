//! A look at the beginning of a recording: who is the client, whom does it ask, which Service is a backend's.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::listing::Listing;
use super::packets::Packets;
use super::table::Zone;
use super::{requests, table};
use crate::codec::requests::Columns;
use crate::files::FileError;
use crate::infer::Settings;
use crate::model::{EventKind, MonoNs, Segment, Tuple};

/// How many connects and requests are looked at.
const LOOK: usize = 2_000;
/// A request and its SYN are no further apart.
const APART: Duration = Duration::from_secs(1);

/// What the beginning tells.
#[derive(Debug, Default)]
pub(super) struct Scouted {
    /// The first moment of anything.
    pub(super) began: Option<MonoNs>,
    /// The client and whom it asks: whose source ports are those of the requests.
    pub(super) client: Option<(IpAddr, SocketAddr)>,
    /// Backends, with the Service in front of each.
    pub(super) fronts: BTreeMap<SocketAddr, SocketAddr>,
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    /// The captures, and by how many nanoseconds the clock of each is ahead.
    pub(super) captures: (&'a [PathBuf], &'a [i64]),
    /// conntrack's logs.
    pub(super) tables: (&'a [PathBuf], Zone),
    /// conntrack's listings, where there are no logs.
    pub(super) listing: Option<&'a Listing>,
    /// The logs of requests, and what their columns are called.
    pub(super) logs: (&'a [PathBuf], &'a Columns),
}

/// Looks at the first connects of the captures, or of conntrack's output where there are no captures.
pub(super) fn look(sources: Sources<'_>, settings: Settings) -> Result<Scouted, FileError> {
    let Sources { captures: (captures, ahead), tables: (tables, zone), listing, .. } = sources;
    let (logs, columns) = sources.logs;
    let mut scouted = Scouted::default();
    let mut connects: Vec<(MonoNs, Tuple)> = Vec::new();
    if let Some(listing) = listing {
        for event in &listing.events {
            scouted.sees(event.time);
            let EventKind::Conntrack(change) = event.kind else { continue };
            if change.reply.src != change.orig.dst {
                scouted.fronts.insert(change.reply.src, change.orig.dst);
                connects.push((event.time, change.orig));
            }
        }
    } else if captures.is_empty() {
        for path in tables {
            for flow in table::reader(path)? {
                let flow = flow?;
                let Some(time) = table::time(&flow, zone) else { continue };
                scouted.sees(time);
                if let Some(backend) = flow.backend() {
                    scouted.fronts.insert(backend, flow.orig.dst);
                    connects.push((time, flow.orig));
                }
                if connects.len() >= LOOK {
                    break;
                }
            }
        }
    } else {
        let mut packets = Packets::open(captures, ahead, settings)?;
        while let Some(event) = packets.next()? {
            scouted.sees(event.time);
            let EventKind::Packet(packet) = event.kind else { continue };
            if let (Segment::Tcp { flags, .. }, Some(lookup)) = (packet.segment, packet.lookup)
                && flags.is_syn()
                && lookup.is_translated()
            {
                scouted.fronts.insert(lookup.reply.src, lookup.orig.dst);
                connects.push((event.time, lookup.orig));
            }
            if connects.len() >= LOOK {
                break;
            }
        }
    }
    let mut ports: HashMap<u16, Vec<MonoNs>> = HashMap::new();
    for path in logs {
        for request in requests::reader(path, columns)?.take(LOOK) {
            let request = request?;
            let start = requests::unix(request.start.at);
            scouted.sees(start);
            if let Some(port) = request.source_port {
                ports.entry(port).or_default().push(start);
            }
        }
    }
    let mut votes: BTreeMap<(IpAddr, SocketAddr), usize> = BTreeMap::new();
    for (time, orig) in connects {
        let starts = ports.get(&orig.src.port()).map_or(&[][..], Vec::as_slice);
        if starts.iter().any(|start| start.since(time) < APART && time.since(*start) < APART) {
            *votes.entry((orig.src.ip(), orig.dst)).or_default() += 1;
        }
    }
    let all: usize = votes.values().sum();
    scouted.client =
        votes.into_iter().find(|(_, count)| *count * 10 > all * 9).map(|(client, _)| client);
    Ok(scouted)
}

impl Scouted {
    fn sees(&mut self, time: MonoNs) {
        self.began = Some(self.began.map_or(time, |began| began.min(time)));
    }
}
