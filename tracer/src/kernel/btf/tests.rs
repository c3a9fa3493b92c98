//! Tests of the reader, on BTF put together by hand.

use proptest::prelude::*;

use super::assemble::Assembly;
use super::*;

/// `struct packet { u32 len; union { struct { u16 port; u16 ports[2]; }; u64 both; }; const flow_t flow; }`
fn packet() -> (Assembly, Btf) {
    let mut kernel = Assembly::new();
    let u16 = kernel.int("u16", 2);
    let u32 = kernel.int("u32", 4);
    let u64 = kernel.int("u64", 8);
    let ports = kernel.array(u16, 2);
    let inner = kernel.structure("", 6, &[("port", u16, 0), ("ports", ports, 16)]);
    let either = kernel.union("", 8, &[("", inner, 0), ("both", u64, 0)]);
    let flow = kernel.structure("flow", 12, &[("id", u64, 0), ("zone", u32, 64)]);
    let flow_t = kernel.typedef("flow_t", flow);
    let constant = kernel.constant(flow_t);
    kernel.structure("packet", 28, &[("len", u32, 0), ("", either, 64), ("flow", constant, 128)]);
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    (kernel, btf)
}

fn member(btf: &Btf, owner: &str, path: &str) -> Result<(u32, u32), String> {
    let owner = btf.find_struct(owner).map_err(|error| error.to_string())?;
    let member = btf.member(owner, path).map_err(|error| error.to_string())?;
    Ok((member.offset, member.size))
}

#[test]
fn members_are_found_through_unnamed_structs_and_unions() {
    let (_, btf) = packet();
    assert_eq!(member(&btf, "packet", "len"), Ok((0, 4)));
    assert_eq!(member(&btf, "packet", "port"), Ok((8, 2)));
    assert_eq!(member(&btf, "packet", "both"), Ok((8, 8)));
    assert_eq!(member(&btf, "packet", "ports"), Ok((10, 4)));
}

#[test]
fn a_dotted_path_goes_through_typedefs_and_qualifiers() {
    let (_, btf) = packet();
    assert_eq!(member(&btf, "packet", "flow.zone"), Ok((24, 4)));
    assert_eq!(member(&btf, "packet", "flow"), Ok((16, 12)));
}

#[test]
fn what_is_not_there_is_named() {
    let (_, btf) = packet();
    assert_eq!(
        member(&btf, "packet", "flow.mark"),
        Err("the kernel has no packet.flow.mark".into())
    );
    assert_eq!(member(&btf, "packet", "len.x"), Err("the kernel has no packet.len.x".into()));
    assert_eq!(member(&btf, "nothing", "x"), Err("the kernel has no struct nothing".into()));
}

#[test]
fn a_forward_declaration_is_not_a_struct() {
    let mut kernel = Assembly::new();
    kernel.forward("nf_conn");
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    assert!(btf.find_struct("nf_conn").is_err());
}

#[test]
fn a_bit_field_has_no_offset() {
    let mut kernel = Assembly::new();
    let u8 = kernel.int("u8", 1);
    kernel.bit_structure("flags", 2, &[("low", u8, 4 << 24), ("whole", u8, 8)]);
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    assert_eq!(member(&btf, "flags", "low"), Err("low is a bit field in this kernel".into()));
    assert_eq!(member(&btf, "flags", "whole"), Ok((1, 1)));
}

#[test]
fn a_module_counts_on_from_the_kernel() {
    let (kernel, base) = packet();
    let flow = base.find_struct("flow").expect("it is there");
    let mut module = Assembly::on(&kernel);
    let own = module.structure("own", 4, &[]);
    module.structure("nf_conn", 20, &[("flow", flow, 32), ("own", own, 128)]);
    let base = Arc::new(base);
    let btf = Btf::parse(module.bytes(), Some(base)).expect("it is whole");
    assert_eq!(member(&btf, "nf_conn", "flow.zone"), Ok((12, 4)));
    assert_eq!(member(&btf, "nf_conn", "own"), Ok((16, 4)));
    // The kernel's own structs are found in the kernel's own BTF.
    assert!(btf.find_struct("packet").is_err());
}

#[test]
fn the_first_parameter_of_a_tracepoint_is_no_argument() {
    let mut kernel = Assembly::new();
    let void = TypeId(0);
    let any = kernel.pointer(void);
    let function = kernel.function(&[any, any, any, any]);
    let pointer = kernel.pointer(function);
    kernel.typedef("btf_trace_kfree_skb", pointer);
    kernel.typedef("btf_trace_odd", any);
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    assert_eq!(btf.tracepoint_arguments("kfree_skb"), Some(3));
    assert_eq!(btf.tracepoint_arguments("odd"), None);
    assert_eq!(btf.tracepoint_arguments("absent"), None);
}

#[test]
fn enumerators_come_with_their_numbers() {
    let mut kernel = Assembly::new();
    kernel.enumeration("skb_drop_reason", &[("SKB_NOT_DROPPED_YET", 0), ("SKB_CONSUMED", 1)]);
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    assert_eq!(
        btf.enumerators("skb_drop_reason"),
        Some(vec![(0, "SKB_NOT_DROPPED_YET".to_owned()), (1, "SKB_CONSUMED".to_owned())])
    );
    assert_eq!(btf.enumerators("absent"), None);
}

#[test]
fn a_circle_of_types_ends() {
    let mut kernel = Assembly::new();
    // Type 1 is a typedef of itself; type 2 holds itself, unnamed, twice.
    kernel.typedef("round", TypeId(1));
    kernel.structure("self", 8, &[("", TypeId(2), 0), ("", TypeId(2), 0)]);
    let btf = Btf::parse(kernel.bytes(), None).expect("it is whole");
    assert_eq!(btf.size_of(TypeId(1)), Err(BtfError::Circle));
    assert_eq!(member(&btf, "self", "x"), Err("the kernel has no self.x".into()));
}

#[test]
fn a_cut_is_noticed() {
    let (kernel, _) = packet();
    let bytes = kernel.bytes();
    assert!(matches!(Btf::parse(Vec::new(), None), Err(BtfError::NotBtf)));
    for length in 4..bytes.len() {
        let cut = Btf::parse(bytes[..length].to_vec(), None);
        assert!(matches!(cut, Err(BtfError::Damaged { .. })), "{length}");
    }
}

/// Asks everything of BTF that can be read at all.
fn ask_everything(bytes: Vec<u8>) {
    let Ok(btf) = Btf::parse(bytes, None) else { return };
    for name in ["packet", "flow", "nf_conn"] {
        if let Ok(owner) = btf.find_struct(name) {
            let _ = btf.member(owner, "flow.zone");
            let _ = btf.member(owner, "port");
            let _ = btf.size_of(owner);
        }
    }
    for number in 0..20 {
        let _ = btf.size_of(TypeId(number));
    }
    let _ = btf.enumerators("flow");
    let _ = btf.tracepoint_arguments("packet");
}

proptest! {
    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut with_header = packet().0.bytes()[..24].to_vec();
        with_header.extend(&bytes);
        ask_everything(bytes);
        ask_everything(with_header);
    }

    #[test]
    fn damage_does_no_harm(at in 0_usize..400, value in any::<u8>(), second in 0_usize..400) {
        let mut bytes = packet().0.bytes();
        let length = bytes.len();
        bytes[at % length] = value;
        bytes[second % length] ^= value;
        ask_everything(bytes);
    }
}
