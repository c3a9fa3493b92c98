//! A small reader of BTF, the kernel's description of its own types
//! (<https://docs.kernel.org/bpf/btf.html>): structs and where their members lie, enums, the arguments of
//! tracepoints. Pure over bytes, which may be bad: every read is checked.

use std::collections::BTreeSet;
use std::sync::Arc;

#[cfg(test)]
pub(super) mod assemble;
#[cfg(test)]
mod tests;

/// What can be wrong with BTF, or missing in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The magic number or the version is another one.
    #[error("not BTF of this machine's byte order")]
    NotBtf,
    /// A length or an offset points outside the data.
    #[error("BTF is cut short or damaged at byte {at}")]
    Damaged {
        /// Where.
        at: usize,
    },
    /// A kind of type that this reader does not know, so that it can't tell where the next one starts.
    #[error("BTF has a kind of type ({kind}) that is newer than this program")]
    UnknownKind {
        /// Its number.
        kind: u8,
    },
    /// No such struct or union, or only a forward declaration.
    #[error("the kernel has no struct {name}")]
    NoStruct {
        /// Its name.
        name: String,
    },
    /// The struct has no such member.
    #[error("the kernel has no {owner}.{member}")]
    NoMember {
        /// The struct.
        owner: String,
        /// The path.
        member: String,
    },
    /// The member is a bit field or not at a whole byte.
    #[error("{member} is a bit field in this kernel")]
    BitField {
        /// The path.
        member: String,
    },
    /// Types refer to each other in a circle.
    #[error("BTF types refer to each other in a circle")]
    Circle,
}

/// A type's number. 0 is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeId(pub u32);

/// Where a member lies and how large it is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the struct's beginning.
    pub offset: u32,
    /// Its size.
    pub size: u32,
}

/// The types of the kernel, or of one of its modules on top of the kernel's.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    types: Vec<Type>,
    strings: std::ops::Range<usize>,
    base: Option<Arc<Btf>>,
    /// The number of this BTF's first type.
    first_type: u32,
    /// The offset of this BTF's first string.
    first_string: u32,
}

/// `struct btf_type`, its flags taken apart.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: u32,
    kind: u8,
    kind_flag: bool,
    vlen: u32,
    size_or_type: u32,
    /// Where in the bytes what follows it begins.
    extra: usize,
}

const MAGIC: u16 = 0xeb9f;

const KIND_INT: u8 = 1;
const KIND_PTR: u8 = 2;
const KIND_ARRAY: u8 = 3;
const KIND_STRUCT: u8 = 4;
const KIND_UNION: u8 = 5;
const KIND_ENUM: u8 = 6;
const KIND_TYPEDEF: u8 = 8;
const KIND_VOLATILE: u8 = 9;
const KIND_CONST: u8 = 10;
const KIND_RESTRICT: u8 = 11;
const KIND_FUNC_PROTO: u8 = 13;
const KIND_FLOAT: u8 = 16;
const KIND_TYPE_TAG: u8 = 18;
const KIND_ENUM64: u8 = 19;

/// Longer chains of modifiers or nested unnamed structs than this do not occur: such BTF is damaged.
const MAX_DEPTH: u32 = 32;

/// BTF is made for 64-bit kernels only, as far as this program goes.
const POINTER_BYTES: u64 = 8;

impl Btf {
    /// Reads the kernel's BTF, or with `base` a module's, which counts on from the kernel's.
    ///
    /// # Errors
    /// If the bytes are not BTF, or are damaged.
    pub fn parse(bytes: Vec<u8>, base: Option<Arc<Btf>>) -> Result<Btf, BtfError> {
        let header = Header::read(&bytes)?;
        let (first_type, first_string) = match &base {
            None => (1, 0),
            Some(base) => (base.end_type(), base.end_string()),
        };
        let types = read_types(&bytes, header.types)?;
        Ok(Btf { bytes, types, strings: header.strings, base, first_type, first_string })
    }

    fn end_type(&self) -> u32 {
        self.first_type.saturating_add(u32::try_from(self.types.len()).unwrap_or(u32::MAX))
    }

    fn end_string(&self) -> u32 {
        let length = u32::try_from(self.strings.len()).unwrap_or(u32::MAX);
        self.first_string.saturating_add(length)
    }

    /// The struct or union of that name, defined in this BTF itself (not in its base).
    ///
    /// # Errors
    /// If there is none.
    pub fn find_struct(&self, name: &str) -> Result<TypeId, BtfError> {
        self.find(name, |kind| matches!(kind, KIND_STRUCT | KIND_UNION))
            .ok_or_else(|| BtfError::NoStruct { name: name.to_owned() })
    }

    /// Where the member at a dotted path lies, through nested and unnamed structs and unions.
    ///
    /// # Errors
    /// If there is no such member, or it is a bit field.
    pub fn member(&self, owner: TypeId, path: &str) -> Result<Member, BtfError> {
        let mut bits = 0_u64;
        let mut at = owner;
        for name in path.split('.') {
            let found = self.find_member(at, name, 0, &mut BTreeSet::new())?.ok_or_else(|| {
                BtfError::NoMember { owner: self.name_of(owner), member: path.to_owned() }
            })?;
            if found.is_bitfield {
                return Err(BtfError::BitField { member: path.to_owned() });
            }
            bits += found.bits;
            at = found.of;
        }
        if !bits.is_multiple_of(8) {
            return Err(BtfError::BitField { member: path.to_owned() });
        }
        let offset = u32::try_from(bits / 8).map_err(|_| BtfError::Damaged { at: 0 })?;
        Ok(Member { offset, size: self.size_of(at)? })
    }

    /// A type's size in bytes; 0 for void and functions.
    ///
    /// # Errors
    /// If the types are damaged.
    pub fn size_of(&self, id: TypeId) -> Result<u32, BtfError> {
        let mut id = id;
        let mut count = 1_u64;
        for _ in 0..MAX_DEPTH {
            let Some((btf, of)) = self.resolve(id)? else { return Ok(0) };
            let size = match of.kind {
                KIND_INT | KIND_STRUCT | KIND_UNION | KIND_ENUM | KIND_ENUM64 | KIND_FLOAT => {
                    u64::from(of.size_or_type)
                }
                KIND_PTR => POINTER_BYTES,
                KIND_ARRAY => {
                    id = TypeId(btf.word(of.extra)?);
                    count = count.saturating_mul(u64::from(btf.word(of.extra + 8)?));
                    continue;
                }
                _ => 0,
            };
            let all = size.saturating_mul(count);
            return u32::try_from(all).map_err(|_| BtfError::Damaged { at: of.extra });
        }
        Err(BtfError::Circle)
    }

    /// The enumerators of an enum in this BTF by number; none if there is no such enum.
    pub fn enumerators(&self, name: &str) -> Option<Vec<(u32, String)>> {
        let id = self.find(name, |kind| kind == KIND_ENUM)?;
        let (btf, of) = self.resolve(id).ok()??;
        (0..of.vlen as usize)
            .map(|index| {
                let at = of.extra + index * 8;
                Some((btf.word(at + 4).ok()?, btf.string(btf.word(at).ok()?)?))
            })
            .collect()
    }

    /// How many arguments a tracepoint's BPF program gets; none if this BTF does not have the tracepoint.
    ///
    /// The kernel declares `typedef void (*btf_trace_NAME)(void *, …)` for each
    /// (include/trace/bpf_probe.h); the first parameter is not passed on.
    pub fn tracepoint_arguments(&self, name: &str) -> Option<u32> {
        let typedef = self.find(&format!("btf_trace_{name}"), |kind| kind == KIND_TYPEDEF)?;
        let (_, pointer) = self.resolve(typedef).ok()??;
        if pointer.kind != KIND_PTR {
            return None;
        }
        let (_, function) = self.resolve(TypeId(pointer.size_or_type)).ok()??;
        if function.kind == KIND_FUNC_PROTO { function.vlen.checked_sub(1) } else { None }
    }

    fn find(&self, name: &str, wanted: impl Fn(u8) -> bool) -> Option<TypeId> {
        let position = self.types.iter().position(|of| {
            wanted(of.kind) && self.string_bytes(of.name) == Some(name.as_bytes())
        })?;
        Some(TypeId(self.first_type.checked_add(u32::try_from(position).ok()?)?))
    }

    /// `searched`: the types without that member, so that none is searched twice.
    fn find_member(
        &self,
        owner: TypeId,
        name: &str,
        depth: u32,
        searched: &mut BTreeSet<u32>,
    ) -> Result<Option<FoundMember>, BtfError> {
        if depth > MAX_DEPTH {
            return Err(BtfError::Circle);
        }
        if !searched.insert(owner.0) {
            return Ok(None);
        }
        let Some((btf, of)) = self.resolve(owner)? else { return Ok(None) };
        if !matches!(of.kind, KIND_STRUCT | KIND_UNION) {
            return Ok(None);
        }
        for index in 0..of.vlen as usize {
            let at = of.extra + index * 12;
            let (member_name, member_type) = (btf.word(at)?, TypeId(btf.word(at + 4)?));
            let place = btf.word(at + 8)?;
            // With the flag, the upper byte is the size of a bit field, 0 for any other member.
            let (bits, is_bitfield) =
                if of.kind_flag { (place & 0x00ff_ffff, place >> 24 != 0) } else { (place, false) };
            let bits = u64::from(bits);
            match self.string_bytes(member_name) {
                Some(found) if found == name.as_bytes() => {
                    return Ok(Some(FoundMember { bits, of: member_type, is_bitfield }));
                }
                Some([]) if !is_bitfield => {
                    if let Some(inner) = self.find_member(member_type, name, depth + 1, searched)? {
                        return Ok(Some(FoundMember { bits: bits + inner.bits, ..inner }));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The type behind typedefs and qualifiers, with the BTF in which it lies. None: void.
    fn resolve(&self, id: TypeId) -> Result<Option<(&Btf, Type)>, BtfError> {
        let mut id = id;
        for _ in 0..MAX_DEPTH {
            let Some((btf, of)) = self.lookup(id)? else { return Ok(None) };
            match of.kind {
                KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | KIND_TYPE_TAG => {
                    id = TypeId(of.size_or_type);
                }
                _ => return Ok(Some((btf, of))),
            }
        }
        Err(BtfError::Circle)
    }

    fn lookup(&self, id: TypeId) -> Result<Option<(&Btf, Type)>, BtfError> {
        if id.0 == 0 {
            return Ok(None);
        }
        match (id.0.checked_sub(self.first_type), &self.base) {
            (Some(index), _) => match self.types.get(index as usize) {
                Some(of) => Ok(Some((self, *of))),
                None => Err(BtfError::Damaged { at: index as usize }),
            },
            (None, Some(base)) => base.lookup(id),
            (None, None) => Err(BtfError::Damaged { at: 0 }),
        }
    }

    fn name_of(&self, id: TypeId) -> String {
        match self.lookup(id) {
            Ok(Some((btf, of))) => btf.string(of.name).unwrap_or_default(),
            _ => String::new(),
        }
    }

    fn string(&self, offset: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.string_bytes(offset)?).into_owned())
    }

    fn string_bytes(&self, offset: u32) -> Option<&[u8]> {
        match (offset.checked_sub(self.first_string), &self.base) {
            (Some(inner), _) => {
                let all = self.bytes.get(self.strings.clone())?;
                let rest = all.get(inner as usize..)?;
                Some(&rest[..rest.iter().position(|&byte| byte == 0)?])
            }
            (None, Some(base)) => base.string_bytes(offset),
            (None, None) => None,
        }
    }

    fn word(&self, at: usize) -> Result<u32, BtfError> {
        word(&self.bytes, at)
    }
}

struct FoundMember {
    bits: u64,
    of: TypeId,
    is_bitfield: bool,
}

struct Header {
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
}

impl Header {
    /// `struct btf_header`: magic, version, flags, header's length, then offset and length of each section,
    /// counted from the header's end.
    fn read(bytes: &[u8]) -> Result<Header, BtfError> {
        let start = bytes.get(..4).ok_or(BtfError::NotBtf)?;
        if u16::from_ne_bytes([start[0], start[1]]) != MAGIC || start[2] != 1 {
            return Err(BtfError::NotBtf);
        }
        let header_bytes = word(bytes, 4)?;
        let section = |at| -> Result<std::ops::Range<usize>, BtfError> {
            let from = u64::from(header_bytes) + u64::from(word(bytes, at)?);
            let to = from + u64::from(word(bytes, at + 4)?);
            if to > bytes.len() as u64 {
                return Err(BtfError::Damaged { at });
            }
            // Both lie within the data, so they fit.
            Ok(from as usize..to as usize)
        };
        Ok(Header { types: section(8)?, strings: section(16)? })
    }
}

fn read_types(bytes: &[u8], section: std::ops::Range<usize>) -> Result<Vec<Type>, BtfError> {
    let mut types = Vec::new();
    let mut at = section.start;
    while at < section.end {
        let info = word(bytes, at + 4)?;
        let of = Type {
            name: word(bytes, at)?,
            kind: (info >> 24 & 0x1f) as u8,
            kind_flag: info >> 31 == 1,
            vlen: info & 0xffff,
            size_or_type: word(bytes, at + 8)?,
            extra: at + 12,
        };
        let vlen = of.vlen as usize;
        let extra_bytes = match of.kind {
            KIND_INT | 14 | 17 => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | 15 | KIND_ENUM64 => vlen * 12,
            KIND_ENUM | KIND_FUNC_PROTO => vlen * 8,
            KIND_PTR | 7 | KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST | KIND_RESTRICT | 12
            | KIND_FLOAT | KIND_TYPE_TAG => 0,
            kind => return Err(BtfError::UnknownKind { kind }),
        };
        at = of.extra + extra_bytes;
        if at > section.end {
            return Err(BtfError::Damaged { at: of.extra });
        }
        types.push(of);
    }
    Ok(types)
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    match bytes.get(at..at.saturating_add(4)) {
        Some(&[a, b, c, d]) => Ok(u32::from_ne_bytes([a, b, c, d])),
        _ => Err(BtfError::Damaged { at }),
    }
}
