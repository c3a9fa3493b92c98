//! What became of a capture's packets.

/// What became of the packets of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub packets: u64,
    /// Those that were passed on.
    pub taken: u64,
    /// TCP segments that neither open nor accept nor close nor reset.
    pub other_segments: u64,
    /// Of another protocol than TCP, and ICMP that is no error about TCP.
    pub not_tcp: u64,
    /// Fragments behind the first, which have no TCP header.
    pub fragments: u64,
    /// Captured too short to tell.
    pub too_short: u64,
    /// With headers that contradict themselves.
    pub malformed: u64,
    /// Of a link type that is not read here, or of an interface that was not described.
    pub unknown_link: u64,
    /// Without a time (simple packet blocks of pcapng), or with one that no clock has.
    pub without_time: u64,
    /// Places where bytes made no sense.
    pub damaged_places: u64,
    /// The bytes that were passed over there.
    pub damaged_bytes: u64,
    /// Packets that the maker of the capture could not keep up with, by its own word.
    pub dropped: u64,
    /// Whether the file ends within a packet.
    pub cut_short: bool,
}

impl Counts {
    /// The reasons for which packets were not passed on, and how many, without those of none.
    pub fn passed_over(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("TCP segments of open connections", self.other_segments),
            ("not TCP", self.not_tcp),
            ("fragments", self.fragments),
            ("captured too short", self.too_short),
            ("malformed headers", self.malformed),
            ("unknown link type", self.unknown_link),
            ("without a time", self.without_time),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }

    /// Counts a packet that is not passed on.
    pub(super) fn pass_over(&mut self, reason: PassedOver) {
        let counter = match reason {
            PassedOver::OtherSegment => &mut self.other_segments,
            PassedOver::NotTcp => &mut self.not_tcp,
            PassedOver::Fragment => &mut self.fragments,
            PassedOver::TooShort => &mut self.too_short,
            PassedOver::Malformed => &mut self.malformed,
            PassedOver::UnknownLink => &mut self.unknown_link,
            PassedOver::NoTime => &mut self.without_time,
        };
        *counter += 1;
    }
}

/// Why a packet is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassedOver {
    OtherSegment,
    NotTcp,
    Fragment,
    TooShort,
    Malformed,
    UnknownLink,
    NoTime,
}
