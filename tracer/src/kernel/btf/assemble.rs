//! BTF put together by hand, for tests.

use super::TypeId;

/// BTF in the making.
pub(in crate::kernel) struct Assembly {
    types: Vec<u8>,
    strings: Vec<u8>,
    next_type: u32,
    first_string: u32,
}

impl Assembly {
    /// The kernel's own.
    pub(in crate::kernel) fn new() -> Assembly {
        Assembly { types: Vec::new(), strings: vec![0], next_type: 1, first_string: 0 }
    }

    /// A module's, on top of a kernel's.
    pub(in crate::kernel) fn on(base: &Assembly) -> Assembly {
        Assembly {
            types: Vec::new(),
            strings: vec![0],
            next_type: base.next_type,
            first_string: base.first_string + base.strings.len() as u32,
        }
    }

    pub(in crate::kernel) fn int(&mut self, name: &str, bytes: u32) -> TypeId {
        self.add(name, 1, 0, false, bytes, &[bytes * 8])
    }

    pub(in crate::kernel) fn pointer(&mut self, to: TypeId) -> TypeId {
        self.add("", 2, 0, false, to.0, &[])
    }

    pub(in crate::kernel) fn array(&mut self, of: TypeId, count: u32) -> TypeId {
        self.add("", 3, 0, false, 0, &[of.0, 1, count])
    }

    pub(in crate::kernel) fn typedef(&mut self, name: &str, to: TypeId) -> TypeId {
        self.add(name, 8, 0, false, to.0, &[])
    }

    pub(in crate::kernel) fn constant(&mut self, of: TypeId) -> TypeId {
        self.add("", 10, 0, false, of.0, &[])
    }

    pub(in crate::kernel) fn forward(&mut self, name: &str) -> TypeId {
        self.add(name, 7, 0, false, 0, &[])
    }

    pub(in crate::kernel) fn function(&mut self, parameters: &[TypeId]) -> TypeId {
        let extra: Vec<u32> = parameters.iter().flat_map(|of| [0, of.0]).collect();
        self.add("", 13, parameters.len() as u32, false, 0, &extra)
    }

    pub(in crate::kernel) fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) -> TypeId {
        let extra: Vec<u32> =
            values.iter().flat_map(|(name, value)| [self.string(name), *value]).collect();
        self.add(name, 6, values.len() as u32, false, 4, &extra)
    }

    /// Members: name, type, bit offset.
    pub(in crate::kernel) fn structure(
        &mut self,
        name: &str,
        bytes: u32,
        members: &[(&str, TypeId, u32)],
    ) -> TypeId {
        self.members(4, name, bytes, false, members)
    }

    pub(in crate::kernel) fn union(
        &mut self,
        name: &str,
        bytes: u32,
        members: &[(&str, TypeId, u32)],
    ) -> TypeId {
        self.members(5, name, bytes, false, members)
    }

    /// A struct with bit fields: each offset holds the size in bits in its upper byte.
    pub(in crate::kernel) fn bit_structure(
        &mut self,
        name: &str,
        bytes: u32,
        members: &[(&str, TypeId, u32)],
    ) -> TypeId {
        self.members(4, name, bytes, true, members)
    }

    /// The finished bytes.
    pub(in crate::kernel) fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = Vec::new();
        bytes.extend(0xeb9f_u16.to_ne_bytes());
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    fn members(
        &mut self,
        kind: u32,
        name: &str,
        bytes: u32,
        bit_fields: bool,
        members: &[(&str, TypeId, u32)],
    ) -> TypeId {
        let extra: Vec<u32> =
            members.iter().flat_map(|(name, of, bits)| [self.string(name), of.0, *bits]).collect();
        self.add(name, kind, members.len() as u32, bit_fields, bytes, &extra)
    }

    fn add(
        &mut self,
        name: &str,
        kind: u32,
        vlen: u32,
        flag: bool,
        size_or_type: u32,
        extra: &[u32],
    ) -> TypeId {
        let info = u32::from(flag) << 31 | kind << 24 | vlen;
        let name = self.string(name);
        for word in [name, info, size_or_type].iter().chain(extra) {
            self.types.extend(word.to_ne_bytes());
        }
        self.next_type += 1;
        TypeId(self.next_type - 1)
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            // The empty string is the first of the kernel's own, for modules as well.
            return 0;
        }
        let offset = self.first_string + self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        offset
    }
}
