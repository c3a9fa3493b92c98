//! What stands before the frames: that it is a trace, of which version, and its header.

use super::{LIMIT, MAGIC, VERSION, array, is_right};
use crate::model::TraceHeader;

/// The preamble's bytes.
pub fn encode_header(header: &TraceHeader) -> Vec<u8> {
    let json = serde_json::to_vec(header).expect("a header has nothing that JSON can't say");
    let length = u32::try_from(json.len()).expect("a header is far below 4 GiB");
    let mut bytes = Vec::with_capacity(Preamble::SIZE + json.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    let crc = checksum(&bytes[MAGIC.len()..], &json);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(&json);
    bytes
}

/// Whether a file that begins with these bytes is a trace, of whatever version.
pub fn is_trace(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The fixed part before the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    version: u16,
    length: u32,
    crc: u32,
}

/// Why a trace can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// There is nothing.
    #[error("is empty")]
    Empty,
    /// It begins otherwise.
    #[error("is not a trace of tracer")]
    NotATrace,
    /// A later tracer made it.
    #[error(
        "is a trace of format version {found}; this tracer reads up to {VERSION}: use a newer one"
    )]
    Newer {
        /// Its version.
        found: u16,
    },
    /// It ends before its events begin.
    #[error("is a trace that was cut off within its header")]
    Cut,
    /// The checksum is wrong, or what it covers can't be understood.
    #[error("is a trace whose header is damaged")]
    Damaged,
}

impl Preamble {
    /// Its bytes.
    pub const SIZE: usize = 18;

    /// Reads a file's first [`Preamble::SIZE`] bytes, or as many as it has.
    pub fn decode(bytes: &[u8]) -> Result<Preamble, HeaderError> {
        if bytes.is_empty() {
            return Err(HeaderError::Empty);
        }
        let magic = bytes.len().min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(HeaderError::NotATrace);
        }
        if bytes.len() < Preamble::SIZE {
            return Err(HeaderError::Cut);
        }
        let preamble = Preamble {
            version: u16::from_le_bytes(array(&bytes[8..10])),
            length: u32::from_le_bytes(array(&bytes[10..14])),
            crc: u32::from_le_bytes(array(&bytes[14..18])),
        };
        match preamble.version {
            0 => Err(HeaderError::Damaged),
            1..=VERSION if preamble.header_len() > LIMIT => Err(HeaderError::Damaged),
            1..=VERSION => Ok(preamble),
            found => Err(HeaderError::Newer { found }),
        }
    }

    /// How many bytes of header follow.
    pub fn header_len(&self) -> usize {
        self.length as usize
    }

    /// Reads the header from these bytes, or as many of them as the file has.
    pub fn header(&self, bytes: &[u8]) -> Result<TraceHeader, HeaderError> {
        let json = bytes.get(..self.header_len()).ok_or(HeaderError::Cut)?;
        let mut fixed = [0; 6];
        fixed[..2].copy_from_slice(&self.version.to_le_bytes());
        fixed[2..].copy_from_slice(&self.length.to_le_bytes());
        if !is_right(checksum(&fixed, json), self.crc) {
            return Err(HeaderError::Damaged);
        }
        serde_json::from_slice(json).map_err(|_| HeaderError::Damaged)
    }
}

/// Over version, length and header.
fn checksum(fixed: &[u8], json: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(fixed);
    crc.update(json);
    crc.finalize()
}
