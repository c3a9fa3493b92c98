//! Writes a long capture of a made-up node, for benchmarks, as `tcpdump -i any` would with a filter for SYN and RST:
//! `cargo run --release --example generate_capture -- OUT.pcap --packets N`. Prints how many packets there are.
//!
//! Each connect is four packets: its SYN before and after NAT, its SYN-ACK before and after NAT is undone. One in
//! five hundred goes to a pod that answers nobody.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::Parser;
use tracer::codec::rebuild;
use tracer::model::{Hook, IfIndex, NetnsId, PacketEvent, Segment, TcpFlags, Tuple};

/// `ip_local_port_range`, which each client goes through in turn.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;
/// When it begins, in nanoseconds of Unix time.
const BEGAN: u64 = 1_700_000_000_000_000_000;
/// The devices: the client's, and the node's own.
const CLIENT_DEVICE: u32 = 7;
const NODE_DEVICE: u32 = 2;

/// Write a long capture of a made-up node, and print how many packets it has
#[derive(Debug, Parser)]
struct Options {
    /// The file to write
    out: PathBuf,

    /// At least so many packets
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,

    /// Connects a second
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,

    /// How many clients there are
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=200))]
    clients: u8,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let mut capture = Capture { out: BufWriter::new(File::create(&options.out)?), packets: 0 };
    capture.begin()?;
    let step = 1_000_000_000 / u64::from(options.rate);
    let mut nth = 0;
    while capture.packets < options.packets {
        capture.connect(nth, options.clients, BEGAN + nth * step)?;
        nth += 1;
    }
    capture.out.flush()?;
    println!("{}", capture.packets);
    Ok(())
}

struct Capture {
    out: BufWriter<File>,
    packets: u64,
}

/// Which way a packet passes its device, as Linux cooked v2 has it.
#[derive(Clone, Copy)]
enum Way {
    In = 0,
    Out = 4,
}

impl Capture {
    /// pcap with nanoseconds, of LINKTYPE_LINUX_SLL2.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.out.write_all(&0xa1b2_3c4d_u32.to_le_bytes())?;
        self.out.write_all(&[2, 0, 4, 0])?;
        self.out.write_all(&[0; 8])?;
        self.out.write_all(&262_144_u32.to_le_bytes())?;
        Ok(self.out.write_all(&276_u32.to_le_bytes())?)
    }

    fn connect(&mut self, nth: u64, clients: u8, time: u64) -> anyhow::Result<()> {
        let ports = u64::from(PORTS.end() - PORTS.start()) + 1;
        let client = (nth % u64::from(clients)) as u8;
        let port = PORTS.start() + (nth / u64::from(clients) % ports) as u16;
        let is_dead = nth % 500 == 250;
        let pod = if is_dead { 99 } else { 20 + (nth % 5) as u8 };
        let end = |a, b, port| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 244, a, b)), port);
        let (source, backend) = (end(1, 2 + client, port), end(2, pod, 8080));
        let service = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10)), 80);
        // The kernel's ISNs advance with its clock (secure_seq.c), from a place of the tuple's own.
        let isn = (u64::from(port) * 7_919 + u64::from(client) * 104_729 + time / 64) as u32;
        let answer = isn.wrapping_mul(2_654_435_761);
        let syn = TcpFlags(TcpFlags::SYN);
        let syn_ack = TcpFlags(TcpFlags::SYN | TcpFlags::ACK);
        let asked = Tuple::new(source, service);
        let sent = Tuple::new(source, backend);
        self.packet(time, CLIENT_DEVICE, Way::In, asked, syn, isn, 0)?;
        self.packet(time + 20_000, NODE_DEVICE, Way::Out, sent, syn, isn, 0)?;
        if !is_dead {
            let ack = isn.wrapping_add(1);
            let time = time + 300_000;
            self.packet(time, NODE_DEVICE, Way::In, sent.reversed(), syn_ack, answer, ack)?;
            let time = time + 20_000;
            self.packet(time, CLIENT_DEVICE, Way::Out, asked.reversed(), syn_ack, answer, ack)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a packet has that many parts")]
    fn packet(
        &mut self,
        time: u64,
        device: u32,
        way: Way,
        tuple: Tuple,
        flags: TcpFlags,
        seq: u32,
        ack: u32,
    ) -> anyhow::Result<()> {
        let bytes = rebuild::packet(&PacketEvent {
            hook: Hook::Capture,
            netns: NetnsId(1),
            ifindex: IfIndex(device),
            tuple,
            segment: Segment::Tcp { flags, seq, ack },
            lookup: None,
            drop: None,
        });
        let length = (20 + bytes.len()) as u32;
        self.out.write_all(&((time / 1_000_000_000) as u32).to_le_bytes())?;
        self.out.write_all(&((time % 1_000_000_000) as u32).to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&length.to_le_bytes())?;
        // Protocol, reserved, device, ARP hardware type (Ethernet), way, address length, address.
        self.out.write_all(&0x0800_u16.to_be_bytes())?;
        self.out.write_all(&[0; 2])?;
        self.out.write_all(&device.to_be_bytes())?;
        self.out.write_all(&1_u16.to_be_bytes())?;
        self.out.write_all(&[way as u8, 6])?;
        self.out.write_all(&[2, 0, 0, 0, 0, device as u8, 0, 0])?;
        self.out.write_all(&bytes)?;
        self.packets += 1;
        Ok(())
    }
}
