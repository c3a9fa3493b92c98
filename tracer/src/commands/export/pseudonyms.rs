//! Other addresses in place of a trace's own, so that it can be shown to strangers: one for each, the same each time, and
//! what shared a prefix shares one as long (ipcrypt-pfx, draft-denis-ipcrypt). Ports, names and times stay.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipcrypt_rs::IpcryptPfx;

use crate::model::{
    ClusterEvent, Event, EventKind, Intervention, Origin, Segment, TraceHeader, Tuple,
};

/// Keys that are tried until one keeps 127.0.0.0/8 in its place, as one of 256 does: what leads a client back to itself
/// must do so still.
const TRIES: usize = 100_000;

/// The other addresses, by a key that nobody keeps.
pub(super) struct Pseudonyms(IpcryptPfx);

impl Pseudonyms {
    /// Under a new key.
    pub(super) fn new() -> Pseudonyms {
        let mut keys = std::iter::repeat_with(|| IpcryptPfx::new(rand::random())).take(TRIES);
        let keeps = |key: &IpcryptPfx| key.encrypt_ipaddr(Ipv4Addr::LOCALHOST.into()).is_loopback();
        let key = keys.find(keeps).unwrap_or_else(|| IpcryptPfx::new(rand::random()));
        Pseudonyms(key)
    }

    fn ip(&self, ip: &mut IpAddr) {
        let is_itself = ip.is_unspecified() || ip.is_ipv6() && ip.is_loopback();
        if !is_itself {
            *ip = self.0.encrypt_ipaddr(*ip);
        }
    }

    fn socket(&self, address: &mut SocketAddr) {
        let mut ip = address.ip();
        self.ip(&mut ip);
        *address = SocketAddr::new(ip, address.port());
    }

    fn tuple(&self, tuple: &mut Tuple) {
        self.socket(&mut tuple.src);
        self.socket(&mut tuple.dst);
    }

    /// Every address of the header, also those in its texts.
    pub(super) fn header(&self, header: &mut TraceHeader) {
        header.services.iter_mut().for_each(|service| self.socket(service));
        header.notes.iter_mut().for_each(|note| *note = self.text(note));
        for hook in &mut header.hooks {
            hook.note = hook.note.take().map(|note| self.text(&note));
        }
        let (Origin::Lab { command, .. } | Origin::Record { command } | Origin::Replay { command }) =
            &mut header.origin;
        *command = self.text(command);
    }

    /// Every address of an event.
    pub(super) fn event(&self, event: &mut Event) {
        match &mut event.kind {
            EventKind::Packet(packet) => {
                self.tuple(&mut packet.tuple);
                if let Segment::IcmpError { from, .. } = &mut packet.segment {
                    self.ip(from);
                }
                if let Some(lookup) = &mut packet.lookup {
                    self.tuple(&mut lookup.orig);
                    self.tuple(&mut lookup.reply);
                }
            }
            EventKind::TcpState(state) => self.tuple(&mut state.tuple),
            EventKind::Cluster { change, .. } => match change {
                ClusterEvent::Pod { address, .. } => address.iter_mut().for_each(|ip| self.ip(ip)),
                ClusterEvent::Endpoint { frontend, backend, .. } => {
                    self.socket(frontend);
                    self.socket(backend);
                }
                ClusterEvent::Rollout { .. } => {}
            },
            EventKind::RequestEnded(ended) => {
                ended.source.iter_mut().for_each(|source| self.socket(source));
                ended.target.iter_mut().for_each(|target| self.socket(target));
            }
            EventKind::Intervention(Intervention::Flush { entries, .. }) => {
                for entry in entries {
                    self.tuple(&mut entry.orig);
                    self.socket(&mut entry.backend);
                }
            }
            EventKind::Connect(connect) => self.tuple(&mut connect.tuple),
            EventKind::Conntrack(change) => {
                self.tuple(&mut change.orig);
                self.tuple(&mut change.reply);
            }
            EventKind::Intervention(Intervention::Timeout { .. } | Intervention::Ports { .. })
            | EventKind::RequestStarted(_)
            | EventKind::SysctlSet { .. }
            | EventKind::Lost { .. }
            | EventKind::Workload(_)
            | EventKind::Ended => {}
        }
    }

    /// The text with other addresses, alone or with a port.
    fn text(&self, text: &str) -> String {
        let is_of_address = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']');
        let mut said = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let start = rest.find(is_of_address).unwrap_or(rest.len());
            let (between, from) = rest.split_at(start);
            let end = from.find(|c| !is_of_address(c)).unwrap_or(from.len());
            let (word, after) = from.split_at(end);
            said.push_str(between);
            said.push_str(&self.word(word));
            rest = after;
        }
        said
    }

    fn word(&self, word: &str) -> String {
        // A sentence's end is none of its last address.
        let bare = word.trim_end_matches(['.', ':']);
        let end = &word[bare.len()..];
        if let Ok(mut address) = bare.parse::<SocketAddr>() {
            self.socket(&mut address);
            return format!("{address}{end}");
        }
        match bare.parse::<IpAddr>() {
            Ok(mut ip) => {
                self.ip(&mut ip);
                format!("{ip}{end}")
            }
            Err(_) => word.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(one: Ipv4Addr, other: Ipv4Addr) -> u32 {
        (one.to_bits() ^ other.to_bits()).leading_zeros()
    }

    #[test]
    fn equal_stays_equal_and_prefixes_stay_as_long() {
        let pseudonyms = Pseudonyms::new();
        let other = |text: &str| {
            let mut ip: IpAddr = text.parse().expect("an address");
            pseudonyms.ip(&mut ip);
            ip
        };
        assert_eq!(other("10.244.1.20"), other("10.244.1.20"));
        let (IpAddr::V4(a), IpAddr::V4(b)) = (other("10.244.1.20"), other("10.244.1.77")) else {
            panic!("they were of IPv4");
        };
        assert_eq!(prefix(a, b), prefix([10, 244, 1, 20].into(), [10, 244, 1, 77].into()));
        assert_ne!(other("10.244.1.20"), other("10.244.1.21"));
        assert!(other("127.0.0.1").is_loopback());
        assert_eq!(other("::1").to_string(), "::1");
        assert_eq!(other("0.0.0.0").to_string(), "0.0.0.0");
    }

    #[test]
    fn addresses_in_texts_are_others_too() {
        let pseudonyms = Pseudonyms::new();
        let text =
            "tracer record --service 10.96.0.20:80 --service [fd00::20]:80; fe80::1, at 192.0.2.7.";
        let said = pseudonyms.text(text);
        for known in ["10.96.0.20", "fd00::20", "fe80::1", "192.0.2.7"] {
            assert!(!said.contains(known), "{said}");
        }
        assert!(said.starts_with("tracer record --service ") && said.ends_with('.'), "{said}");
        assert!(said.contains(":80 --service ["), "{said}");
        let plain = "6.18.44: a face at 3.5 s, dead:beef or not";
        assert_eq!(pseudonyms.text(plain), plain);
    }
}
