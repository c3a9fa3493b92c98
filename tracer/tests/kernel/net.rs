//! Three network namespaces of our own: a client, a node that translates, and a host of pods, in which one
//! address lives and another is swallowed. Gone when dropped.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{io, thread};

use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};
use tracer::model::NetnsId;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Which address family a network is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The network. Port 80 of the Service leads to the address that is swallowed, ports 81 and 83 to the living
/// one; port 82 is rejected by ICMP, as kube-proxy does for a Service without endpoints.
pub(crate) struct Net {
    name: String,
    family: Family,
    subnet: u8,
}

impl Net {
    pub(crate) fn new(family: Family) -> Net {
        let subnet = NEXT.fetch_add(1, Ordering::Relaxed) as u8;
        let name = format!("tkt{}-{subnet}", std::process::id());
        let net = Net { name, family, subnet };
        net.build();
        net
    }

    pub(crate) fn swallowed_service(&self) -> SocketAddr {
        SocketAddr::new(self.address(205, 1), 80)
    }

    pub(crate) fn refusing_service(&self) -> SocketAddr {
        SocketAddr::new(self.address(205, 1), 81)
    }

    pub(crate) fn rejected_service(&self) -> SocketAddr {
        SocketAddr::new(self.address(205, 1), 82)
    }

    pub(crate) fn answering_service(&self) -> SocketAddr {
        SocketAddr::new(self.address(205, 1), 83)
    }

    pub(crate) fn answering_backend(&self) -> SocketAddr {
        SocketAddr::new(self.address(204, 2), 8083)
    }

    /// The node's address on the client's side.
    pub(crate) fn gateway(&self) -> IpAddr {
        self.address(203, 1)
    }

    pub(crate) fn swallowed_backend(&self) -> SocketAddr {
        SocketAddr::new(self.address(204, 9), 8080)
    }

    pub(crate) fn refusing_backend(&self) -> SocketAddr {
        SocketAddr::new(self.address(204, 2), 8081)
    }

    pub(crate) fn client(&self) -> IpAddr {
        self.address(203, 2)
    }

    pub(crate) fn client_netns(&self) -> NetnsId {
        self.netns("c")
    }

    pub(crate) fn node_netns(&self) -> NetnsId {
        self.netns("n")
    }

    pub(crate) fn pods_netns(&self) -> NetnsId {
        self.netns("p")
    }

    pub(crate) fn all_netns(&self) -> Vec<NetnsId> {
        vec![self.client_netns(), self.node_netns(), self.pods_netns()]
    }

    /// Sets the node's timer for entries in SYN_SENT.
    pub(crate) fn set_syn_sent_timer(&self, seconds: u32) {
        self.write("n", "net/netfilter/nf_conntrack_tcp_timeout_syn_sent", &seconds.to_string());
    }

    /// Has the pods' host track connections, like a node of its own.
    pub(crate) fn track_in_pods(&self) {
        let rules = "*filter\n-A INPUT -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n";
        run(&["ip", "netns", "exec", &self.part("p"), self.restore()], rules);
    }

    /// Connects from the client's namespace and a port of choice, or of the kernel's choice if that is 0;
    /// gives up after `timeout`.
    pub(crate) fn connect(
        &self,
        from_port: u16,
        to: SocketAddr,
        timeout: Duration,
    ) -> io::Result<()> {
        let from = SocketAddr::new(self.client(), from_port);
        self.inside("c", move || {
            let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
            if from_port != 0 {
                socket.bind(&from.into())?;
            }
            socket.connect_timeout(&to.into(), timeout)
        })
    }

    /// Listens in the pods' namespace.
    pub(crate) fn listen(&self, at: SocketAddr) -> TcpListener {
        self.inside("p", move || TcpListener::bind(at)).expect("nobody else listens there")
    }

    fn inside<T: Send + 'static>(
        &self,
        part: &str,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let path = self.path(part);
        thread::spawn(move || {
            setns(File::open(path)?, CloneFlags::CLONE_NEWNET)?;
            act()
        })
        .join()
        .expect("the thread does not panic")
    }

    fn restore(&self) -> &'static str {
        match self.family {
            Family::V4 => "iptables-restore",
            Family::V6 => "ip6tables-restore",
        }
    }

    fn address(&self, part: u8, host: u8) -> IpAddr {
        match self.family {
            Family::V4 => Ipv4Addr::new(10, part, self.subnet, host).into(),
            Family::V6 => {
                let part = u16::from(part);
                Ipv6Addr::new(0xfd00, part, self.subnet.into(), 0, 0, 0, 0, host.into()).into()
            }
        }
    }

    fn build(&self) {
        for part in ["c", "n", "p"] {
            run(&["ip", "netns", "add", &self.part(part)], "");
            run(&["ip", "-n", &self.part(part), "link", "set", "lo", "up"], "");
        }
        // The search for duplicates of an address would hold up its first packets for a second.
        for part in ["c", "n", "p"] {
            self.write(part, "net/ipv6/conf/all/accept_dad", "0");
            self.write(part, "net/ipv6/conf/default/accept_dad", "0");
        }
        self.join("c", 203);
        self.join("p", 204);
        self.write("n", "net/ipv4/ip_forward", "1");
        self.write("n", "net/ipv6/conf/all/forwarding", "1");
        self.write("p", "net/ipv4/ip_forward", "0");
        self.write("p", "net/ipv6/conf/all/forwarding", "0");
        // The pods' host gets the dead address's packets and drops them without a word: it does not forward.
        let (dead, living) = (self.swallowed_backend().ip(), self.refusing_backend().ip());
        let node = self.part("n");
        run(
            &["ip", "-n", &node, "route", "add", &dead.to_string(), "via", &living.to_string()],
            "",
        );
        let rule = |service: SocketAddr, backend: SocketAddr| {
            format!(
                "-A PREROUTING -d {} -p tcp --dport {} -j DNAT --to-destination {backend}\n",
                service.ip(),
                service.port()
            )
        };
        let rejected = self.rejected_service();
        let rules = format!(
            "*nat\n{}{}{}COMMIT\n*filter\n-A FORWARD -d {} -p tcp --dport {} -j REJECT\nCOMMIT\n",
            rule(self.swallowed_service(), self.swallowed_backend()),
            rule(self.refusing_service(), self.refusing_backend()),
            rule(self.answering_service(), self.answering_backend()),
            rejected.ip(),
            rejected.port(),
        );
        run(&["ip", "netns", "exec", &node, self.restore()], &rules);
        // What is rejected must have somewhere to go, or there would be no forwarding of it at all.
        run(&["ip", "-n", &node, "route", "add", &rejected.ip().to_string(), "dev", "to-p"], "");
    }

    /// Joins a namespace to the node by a veth pair; the node has host 1, the other side host 2.
    fn join(&self, part: &str, subnet: u8) {
        let (here, node) = (self.part(part), self.part("n"));
        let node_device = format!("to-{part}");
        run(
            &[
                "ip",
                "-n",
                &node,
                "link",
                "add",
                &node_device,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                &here,
            ],
            "",
        );
        for (netns, device, host) in [(&node, node_device.as_str(), 1), (&here, "eth0", 2)] {
            let bits = if self.family == Family::V4 { 24 } else { 64 };
            let address = format!("{}/{bits}", self.address(subnet, host));
            run(&["ip", "-n", netns, "address", "add", &address, "dev", device], "");
            run(&["ip", "-n", netns, "link", "set", device, "up"], "");
        }
        let gateway = self.address(subnet, 1).to_string();
        run(&["ip", "-n", &here, "route", "add", "default", "via", &gateway], "");
    }

    fn write(&self, part: &str, sysctl: &str, value: &str) {
        let script = format!("echo {value} > /proc/sys/{sysctl}");
        run(&["ip", "netns", "exec", &self.part(part), "sh", "-c", &script], "");
    }

    fn part(&self, part: &str) -> String {
        format!("{}{part}", self.name)
    }

    fn path(&self, part: &str) -> String {
        format!("/run/netns/{}", self.part(part))
    }

    fn netns(&self, part: &str) -> NetnsId {
        let path = self.path(part);
        let inode =
            std::fs::metadata(&path).unwrap_or_else(|error| panic!("{path}: {error}")).ino();
        NetnsId(u32::try_from(inode).expect("an inode number of nsfs has 32 bits"))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for part in ["c", "n", "p"] {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.part(part)])
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn run(command: &[&str], input: &str) {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", command[0]));
    child
        .stdin
        .take()
        .expect("it is piped")
        .write_all(input.as_bytes())
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let output = child.wait_with_output().expect("the child can be waited for");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
