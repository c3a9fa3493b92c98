//! Numbers in either byte order.

/// The byte order of the machine that made the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The 16 bits at this place, if they are there.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u16::from_le_bytes(bytes),
            Order::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The 32 bits at this place, if they are there.
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u32::from_le_bytes(bytes),
            Order::Big => u32::from_be_bytes(bytes),
        })
    }

    /// The 64 bits at this place, if they are there.
    pub(super) fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let bytes = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Order::Little => u64::from_le_bytes(bytes),
            Order::Big => u64::from_be_bytes(bytes),
        })
    }
}

/// The 16 bits in network order at this place, if they are there.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Order::Big.u16(bytes, at)
}

/// The 32 bits in network order at this place, if they are there.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Order::Big.u32(bytes, at)
}
