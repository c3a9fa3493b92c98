//! A table as `conntrack -L` lists it, as events. A listing tells of one moment, and of each entry how long it
//! still has: from that and the timer of its state follows when it was made, or last had a packet.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;

use super::table;
use crate::codec::conntrack::{Flow, FlowKind};
use crate::infer::TableSilence;
use crate::model::{
    ConntrackEvent, CtState, EntryChange, Event, EventKind, MonoNs, NetnsId, Sysctl,
};

/// The protocol's number.
const TCP: u8 = 6;

/// The kernel's timers (net/netfilter/nf_conntrack_proto_tcp.c, tcp_timeouts), but for the two that kube-proxy sets
/// (pkg/proxy/conntrack/sysctls.go), in seconds; the suffix of each sysctl's name stands before it.
const TIMERS: [(CtState, &str, u64); 8] = [
    (CtState::SynSent, "syn_sent", 120),
    (CtState::SynRecv, "syn_recv", 60),
    (CtState::Established, "established", 86_400),
    (CtState::FinWait, "fin_wait", 120),
    (CtState::CloseWait, "close_wait", 3_600),
    (CtState::LastAck, "last_ack", 30),
    (CtState::TimeWait, "time_wait", 120),
    (CtState::Close, "close", 10),
];

/// What is known of the machine whose table it is.
pub(super) struct Place<'a> {
    /// Its namespace.
    pub(super) netns: NetnsId,
    /// The sysctls that a file tells.
    pub(super) sysctls: &'a [Sysctl],
    /// The moment of the listing, if the user says it.
    pub(super) listed_at: Option<MonoNs>,
    /// Whether to infer who fell silent: where nothing tells of pods.
    pub(super) silence: bool,
}

/// Listings, as events in the order of time.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) events: Vec<Event>,
    pub(super) notes: Vec<String>,
}

/// Reads these files, if they are listings and nothing else: a log of changes tells the same and more.
///
/// # Errors
/// If one can't be read.
pub(super) fn read(paths: &[PathBuf], place: &Place<'_>) -> anyhow::Result<Option<Listing>> {
    let mut changes = Vec::new();
    let mut listing = Listing::default();
    for path in paths {
        let moment = match place.listed_at {
            Some(moment) => moment,
            None => written(path)?,
        };
        let mut entries = 0_u64;
        for flow in table::reader(path)? {
            let flow = flow?;
            if flow.kind != FlowKind::Listed {
                return Ok(None);
            }
            entries += 1;
            changes.extend(place.changes(&flow, moment));
        }
        changes.push((moment, None));
        let whence = if place.listed_at.is_some() { "--listed-at" } else { "the file's own time" };
        listing.notes.push(format!(
            "{} lists {entries} entries of one moment, {:.0} in Unix time by {whence}{}; when each was made or last \
             used follows from what it had left",
            path.display(),
            moment.0 as f64 / 1e9,
            if place.listed_at.is_some() { "" } else { " (--listed-at)" },
        ));
    }
    // An entry that was answered is shown from its last packet on.
    changes.sort_by_key(|(time, _)| *time);
    let mut silence = place.silence.then(TableSilence::default);
    for (time, change) in changes {
        let Some(change) = change else {
            listing.events.extend(silence.iter_mut().flat_map(|silence| silence.at(time)));
            listing.events.push(Event { time, kind: EventKind::Ended });
            continue;
        };
        listing.events.push(Event { time, kind: EventKind::Conntrack(change) });
        if let Some(silence) = &mut silence {
            listing.events.extend(silence.apply(time, &change));
        }
    }
    Ok(Some(listing))
}

/// When the file was last written: a listing is written at once.
fn written(path: &std::path::Path) -> anyhow::Result<MonoNs> {
    let reading = || format!("asking when {} was written", path.display());
    let time: SystemTime =
        path.metadata().and_then(|file| file.modified()).with_context(reading)?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(MonoNs(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}

impl Place<'_> {
    /// The timer of a state, at least as long as what an entry has left of it.
    fn timer(&self, state: CtState, left: Duration) -> Option<Duration> {
        let (_, name, usual) = TIMERS.into_iter().find(|(known, _, _)| *known == state)?;
        let sysctl = format!("net.netfilter.nf_conntrack_tcp_timeout_{name}");
        let told = self.sysctls.iter().find(|sysctl_| sysctl_.name == sysctl);
        let seconds = told.and_then(|told| told.value.parse().ok()).unwrap_or(usual);
        let timer = Duration::from_secs(seconds);
        (left <= timer).then_some(timer)
    }

    /// What must have happened to an entry that is there.
    fn changes(&self, flow: &Flow, moment: MonoNs) -> Vec<(MonoNs, Option<ConntrackEvent>)> {
        let (Some(state), Some(left), TCP) = (flow.state, flow.remaining, flow.protocol) else {
            return Vec::new();
        };
        let timer = self.timer(state, left);
        // A timer that was set since tells nothing of the age; then it was there at this moment.
        let at = timer.map_or(moment, |timer| moment - (timer - left));
        let change = |change, state, unreplied, remaining| ConntrackEvent {
            netns: self.netns,
            change,
            orig: flow.orig,
            reply: flow.reply,
            zone: flow.zone,
            state: Some(state),
            unreplied,
            remaining,
        };
        if flow.unreplied {
            let remaining = Some(timer.unwrap_or(left));
            return vec![(at, Some(change(EntryChange::New, state, true, remaining)))];
        }
        let new = change(EntryChange::New, CtState::SynSent, true, None);
        let replied = change(EntryChange::Updated, CtState::SynRecv, false, None);
        vec![(at, Some(new)), (at, Some(replied))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const LIST: &str = "\
tcp      6 89 SYN_SENT src=10.244.1.16 dst=10.96.0.10 sport=60914 dport=80 [UNREPLIED] src=10.244.1.20 dst=10.244.1.16 sport=8080 dport=60914 mark=0 use=1
tcp      6 100 TIME_WAIT src=10.244.1.16 dst=10.96.0.10 sport=60916 dport=80 src=10.244.2.8 dst=10.244.1.16 sport=8080 dport=60916 [ASSURED] mark=0 use=1
udp      17 9 src=10.244.1.16 dst=10.96.0.11 sport=5353 dport=53 src=10.244.2.9 dst=10.244.1.16 sport=53 dport=5353 mark=0 use=1
";

    fn place(sysctls: &[Sysctl]) -> Place<'_> {
        let listed_at = Some(MonoNs(1_000_000_000_000));
        Place { netns: NetnsId(1), sysctls, listed_at, silence: false }
    }

    fn times(text: &str, sysctls: &[Sysctl]) -> Option<Vec<u64>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.txt");
        fs::write(&path, text).unwrap();
        let listing = read(&[path], &place(sysctls)).unwrap()?;
        Some(listing.events.iter().map(|event| event.time.0 / 1_000_000_000).collect())
    }

    #[test]
    fn what_an_entry_has_left_tells_when_it_was_made_or_last_used() {
        // 31 s ago, and 20 s ago twice: made at the latest then, and answered; and the listing itself.
        assert_eq!(times(LIST, &[]), Some(vec![969, 980, 980, 1_000]));
    }

    #[test]
    fn the_timer_is_that_of_the_machine_if_it_is_told() {
        let netns = NetnsId(1);
        let name = "net.netfilter.nf_conntrack_tcp_timeout_syn_sent".to_owned();
        let sysctl = |value: &str| Sysctl { netns, name: name.clone(), value: value.to_owned() };
        assert_eq!(times(LIST, &[sysctl("100")]).unwrap()[..2], [980, 980]);
        // More is left than the timer gives: it was changed since, and the age is not known.
        assert_eq!(times(LIST, &[sysctl("20")]).unwrap(), [980, 980, 1_000, 1_000]);
    }

    #[test]
    fn a_log_of_changes_is_no_listing() {
        let log = format!("{LIST}[1796091212.856558]\t    [NEW] {}", LIST.lines().next().unwrap());
        assert_eq!(times(&log, &[]), None);
    }
}
