//! From the table of kernel fields to offsets in the running kernel. All members of a struct come from one
//! BTF; a missing one switches a feature off by name. Nothing is guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tracer_ebpf::fields::{ABSENT, FIELDS, LAYOUTS, Layout};
pub use tracer_ebpf::fields::{Feature, Field};

use super::btf::{Btf, BtfError};

/// Where the kernel shows its BTF and that of its modules.
const BTF_DIR: &str = "/sys/kernel/btf";

/// Modules whose structs are read where the kernel proper does not have them.
const MODULES: [&str; 1] = ["nf_conntrack"];

/// Why the kernel's types could not be had.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// No BTF at all: the kernel was built without CONFIG_DEBUG_INFO_BTF, or /sys is hidden.
    #[error("cannot read {path}: the kernel needs CONFIG_DEBUG_INFO_BTF")]
    Read {
        /// The file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// Bad BTF.
    #[error("{path}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: BtfError,
    },
}

/// The running kernel's types: vmlinux first, then the modules that matter and are loaded.
#[derive(Debug)]
pub struct KernelTypes {
    parts: Vec<(&'static str, Arc<Btf>)>,
}

impl KernelTypes {
    /// Reads them from /sys/kernel/btf.
    ///
    /// # Errors
    /// If the kernel's own can't be read. A module that is not loaded is left out.
    pub fn read() -> Result<KernelTypes, FieldsError> {
        let vmlinux = Arc::new(read_one("vmlinux", None)?);
        let mut parts = vec![("vmlinux", Arc::clone(&vmlinux))];
        for module in MODULES {
            if Path::new(BTF_DIR).join(module).exists() {
                parts.push((module, Arc::new(read_one(module, Some(Arc::clone(&vmlinux)))?)));
            }
        }
        Ok(KernelTypes { parts })
    }

    /// The same from BTF that is at hand, the kernel's own first.
    pub fn from_parts(parts: Vec<(&'static str, Arc<Btf>)>) -> KernelTypes {
        KernelTypes { parts }
    }

    /// The names of the parts that were found.
    pub fn names(&self) -> Vec<&'static str> {
        self.parts.iter().map(|(name, _)| *name).collect()
    }

    /// How many arguments a tracepoint's program gets.
    pub fn tracepoint_arguments(&self, name: &str) -> Option<u32> {
        self.parts.iter().find_map(|(_, btf)| btf.tracepoint_arguments(name))
    }

    /// The names of `enum skb_drop_reason`, without their common prefix. Empty before Linux 5.17.
    pub fn drop_reasons(&self) -> BTreeMap<u32, String> {
        self.parts
            .iter()
            .find_map(|(_, btf)| btf.enumerators("skb_drop_reason"))
            .unwrap_or_default()
            .into_iter()
            .map(|(number, name)| match name.strip_prefix("SKB_DROP_REASON_") {
                Some(short) => (number, short.to_owned()),
                None => (number, name),
            })
            .collect()
    }
}

fn read_one(name: &str, base: Option<Arc<Btf>>) -> Result<Btf, FieldsError> {
    let path = Path::new(BTF_DIR).join(name);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(source) => return Err(FieldsError::Read { path, source }),
    };
    Btf::parse(bytes, base).map_err(|source| FieldsError::Parse { path, source })
}

/// The offsets, and what is off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// Every field's global and its offset, [`ABSENT`] where its feature is off.
    pub globals: Vec<(&'static str, u32)>,
    /// The features that are off, and why.
    pub off: BTreeMap<Feature, String>,
    /// Which BTF each struct was taken from.
    pub found_in: BTreeMap<&'static str, &'static str>,
}

impl Offsets {
    /// Whether a feature works.
    pub fn has(&self, feature: Feature) -> bool {
        !self.off.contains_key(&feature)
    }

    /// Every field and where it lies; none where its feature is off.
    pub fn fields(&self) -> impl Iterator<Item = (&'static Field, Option<u32>)> + '_ {
        FIELDS
            .iter()
            .zip(&self.globals)
            .map(|(field, (_, offset))| (field, Some(*offset).filter(|&offset| offset != ABSENT)))
    }

    /// A sentence for each feature that is off: why, and what it costs.
    pub fn notes(&self) -> Vec<String> {
        self.off.iter().map(|(feature, why)| format!("{}: {why}", cost(*feature))).collect()
    }
}

/// What is lost without a feature.
pub fn cost(feature: Feature) -> &'static str {
    match feature {
        Feature::Packets => "packets can't be read, so nothing can be traced",
        Feature::Entry => "conntrack entries can't be read, so no SYN's translation is seen",
        Feature::Life => "the remaining life of conntrack entries is unknown",
        Feature::Zone => "conntrack zones can't be told apart",
        Feature::TcpState => "the TCP state of conntrack entries is unknown",
        Feature::Sockets => "client sockets are not seen",
        Feature::SocketsV6 => "client sockets of IPv6 are not seen",
    }
}

/// The features without which another one can't work.
fn needs(feature: Feature) -> &'static [Feature] {
    match feature {
        Feature::Packets => &[],
        Feature::Entry | Feature::Sockets => &[Feature::Packets],
        Feature::Life | Feature::Zone | Feature::TcpState => &[Feature::Entry],
        Feature::SocketsV6 => &[Feature::Sockets],
    }
}

const ALL: [Feature; 7] = [
    Feature::Packets,
    Feature::Entry,
    Feature::Life,
    Feature::Zone,
    Feature::TcpState,
    Feature::Sockets,
    Feature::SocketsV6,
];

/// Finds every field. Each struct is taken from the BTF in which the most of its members are found, the
/// kernel's own first.
pub fn resolve(types: &KernelTypes) -> Offsets {
    let mut found = BTreeMap::new();
    let mut off = BTreeMap::new();
    let mut found_in = BTreeMap::new();
    let owners: BTreeSet<&'static str> = FIELDS
        .iter()
        .map(|field| field.owner)
        .chain(LAYOUTS.iter().map(|layout| layout.owner))
        .collect();
    for owner in owners {
        let best = types
            .parts
            .iter()
            .map(|(part, btf)| (*part, resolve_struct(btf, owner)))
            .min_by_key(|(_, of)| of.missing.len())
            .expect("there is always the kernel's own part");
        let (part, of) = best;
        if !of.offsets.is_empty() {
            found_in.insert(owner, part);
        }
        found.extend(of.offsets);
        for (feature, why) in of.missing {
            off.entry(feature).or_insert(why);
        }
    }
    for feature in ALL {
        let blocked = needs(feature).iter().find_map(|needed| off.get(needed).cloned());
        if let Some(why) = blocked {
            off.entry(feature).or_insert(why);
        }
    }
    let globals = FIELDS
        .iter()
        .map(|field| {
            let usable = !off.contains_key(&field.feature);
            let offset = found.get(field.global).copied().filter(|_| usable);
            (field.global, offset.unwrap_or(ABSENT))
        })
        .collect();
    Offsets { globals, off, found_in }
}

#[derive(Default)]
struct StructOffsets {
    offsets: BTreeMap<&'static str, u32>,
    missing: Vec<(Feature, String)>,
}

fn resolve_struct(btf: &Btf, owner: &'static str) -> StructOffsets {
    let mut of = StructOffsets::default();
    for field in FIELDS.iter().filter(|field| field.owner == owner) {
        match offset_of(btf, field) {
            Ok(offset) => {
                of.offsets.insert(field.global, offset);
            }
            Err(why) => of.missing.push((field.feature, why)),
        }
    }
    for layout in LAYOUTS.iter().filter(|layout| layout.owner == owner) {
        if let Err(why) = check_layout(btf, layout) {
            of.missing.push((layout.feature, why));
        }
    }
    of
}

fn offset_of(btf: &Btf, field: &Field) -> Result<u32, String> {
    let owner = btf.find_struct(field.owner).map_err(|error| error.to_string())?;
    let member = btf.member(owner, field.member).map_err(|error| error.to_string())?;
    if field.size != 0 && member.size != field.size {
        return Err(format!(
            "{}.{} has {} bytes in this kernel instead of {}",
            field.owner, field.member, member.size, field.size
        ));
    }
    Ok(member.offset)
}

fn check_layout(btf: &Btf, layout: &Layout) -> Result<(), String> {
    let owner = btf.find_struct(layout.owner).map_err(|error| error.to_string())?;
    let at = if layout.member.is_empty() {
        btf.size_of(owner).map_err(|error| error.to_string())?
    } else {
        btf.member(owner, layout.member).map_err(|error| error.to_string())?.offset
    };
    if at == layout.at {
        return Ok(());
    }
    let what = if layout.member.is_empty() { "size" } else { layout.member };
    Err(format!("{}: {what} is {at} in this kernel instead of {}", layout.owner, layout.at))
}

#[cfg(test)]
mod tests {
    use super::super::btf::assemble::Assembly;
    use super::*;

    /// A kernel with just the fields of the table, 64 bytes apart, except those that `leave_out` names.
    fn kernel(leave_out: &[&str]) -> Assembly {
        let mut kernel = Assembly::new();
        add_structs(&mut kernel, leave_out, |_| true);
        kernel
    }

    fn add_structs(btf: &mut Assembly, leave_out: &[&str], wanted: impl Fn(&str) -> bool) {
        let byte = btf.int("byte", 1);
        if wanted("nf_conntrack_tuple") {
            add_tuples(btf);
        }
        let owners: BTreeSet<_> = FIELDS.iter().map(|field| field.owner).collect();
        for owner in owners {
            if owner == "nf_conntrack_tuple_hash" || !wanted(owner) {
                continue;
            }
            let mut members = Vec::new();
            for (place, field) in (1_u32..).zip(FIELDS.iter().filter(|field| field.owner == owner))
            {
                if leave_out.contains(&field.global) {
                    continue;
                }
                // A path of several names becomes nested structs of one member each.
                let mut names = field.member.rsplit('.');
                let mut name = names.next().expect("a path has a name");
                let mut of = btf.array(byte, field.size);
                for outer in names {
                    of = btf.structure("", field.size, &[(name, of, 0)]);
                    name = outer;
                }
                members.push((name, of, place * 64 * 8));
            }
            btf.structure(owner, 4096, &members);
        }
    }

    fn add_tuples(btf: &mut Assembly) {
        let byte = btf.int("byte", 1);
        let source =
            btf.structure("", 20, &[("u3", byte, 0), ("u", byte, 128), ("l3num", byte, 144)]);
        let destination =
            btf.structure("", 20, &[("u3", byte, 0), ("u", byte, 128), ("protonum", byte, 144)]);
        let tuple = btf.structure(
            "nf_conntrack_tuple",
            40,
            &[("src", source, 0), ("dst", destination, 160)],
        );
        btf.structure("nf_conntrack_tuple_hash", 56, &[("tuple", tuple, 128)]);
    }

    fn types(vmlinux: &Assembly, module: Option<&Assembly>) -> KernelTypes {
        let base = Arc::new(Btf::parse(vmlinux.bytes(), None).expect("it is whole"));
        let mut parts = vec![("vmlinux", Arc::clone(&base))];
        if let Some(module) = module {
            let btf = Btf::parse(module.bytes(), Some(base)).expect("it is whole");
            parts.push(("nf_conntrack", Arc::new(btf)));
        }
        KernelTypes::from_parts(parts)
    }

    fn offset(offsets: &Offsets, global: &str) -> u32 {
        offsets.globals.iter().find(|(name, _)| *name == global).expect("it is in the table").1
    }

    #[test]
    fn every_field_of_a_whole_kernel_is_found() {
        let offsets = resolve(&types(&kernel(&[]), None));
        assert_eq!(offsets.notes(), Vec::<String>::new());
        assert_eq!(offset(&offsets, "SKB_NFCT"), 64);
        assert_eq!(offset(&offsets, "SKB_PROTOCOL"), 128);
        assert_eq!(offset(&offsets, "HASH_TUPLE"), 16);
    }

    #[test]
    fn a_missing_member_switches_its_feature_off_by_name() {
        let offsets = resolve(&types(&kernel(&["CONN_ZONE"]), None));
        assert_eq!(
            offsets.notes(),
            ["conntrack zones can't be told apart: the kernel has no nf_conn.zone.id"]
        );
        assert_eq!(offset(&offsets, "CONN_ZONE"), ABSENT);
        assert_ne!(offset(&offsets, "CONN_STATUS"), ABSENT);
    }

    #[test]
    fn what_needs_a_missing_feature_is_off_as_well() {
        let offsets = resolve(&types(&kernel(&["CONN_STATUS"]), None));
        for feature in [Feature::Entry, Feature::Life, Feature::Zone, Feature::TcpState] {
            assert!(!offsets.has(feature), "{feature:?}");
        }
        assert!(offsets.has(Feature::Packets) && offsets.has(Feature::Sockets));
        assert_eq!(offset(&offsets, "SKB_NFCT"), ABSENT);
    }

    #[test]
    fn structs_of_a_module_come_from_the_module() {
        let ours = |owner: &str| owner.starts_with("nf_");
        let mut vmlinux = Assembly::new();
        add_structs(&mut vmlinux, &[], |owner| !ours(owner));
        // Older kernels declare it in the kernel proper without its members.
        vmlinux.forward("nf_conn");
        let mut module = Assembly::on(&vmlinux);
        add_structs(&mut module, &[], ours);

        let without = resolve(&types(&vmlinux, None));
        assert_eq!(without.off[&Feature::Entry], "the kernel has no struct nf_conn");

        let with = resolve(&types(&vmlinux, Some(&module)));
        assert_eq!(with.notes(), Vec::<String>::new());
        assert_eq!(with.found_in["nf_conn"], "nf_conntrack");
        assert_eq!(with.found_in["sk_buff"], "vmlinux");
    }

    #[test]
    fn a_tuple_of_another_shape_is_not_read() {
        let mut vmlinux = Assembly::new();
        add_structs(&mut vmlinux, &[], |owner| owner != "nf_conntrack_tuple");
        let byte = vmlinux.int("byte", 1);
        let tuple = vmlinux.structure("nf_conntrack_tuple", 44, &[]);
        vmlinux.structure("nf_conntrack_tuple_hash", 60, &[("tuple", tuple, 128), ("x", byte, 0)]);
        let offsets = resolve(&types(&vmlinux, None));
        assert_eq!(
            offsets.off[&Feature::Entry],
            "nf_conntrack_tuple: size is 44 in this kernel instead of 40"
        );
    }

    #[test]
    fn drop_reasons_lose_their_prefix() {
        let mut vmlinux = Assembly::new();
        vmlinux.enumeration(
            "skb_drop_reason",
            &[("SKB_CONSUMED", 1), ("SKB_DROP_REASON_NO_SOCKET", 3)],
        );
        let names = types(&vmlinux, None).drop_reasons();
        assert_eq!(names[&1], "SKB_CONSUMED");
        assert_eq!(names[&3], "NO_SOCKET");
    }
}
