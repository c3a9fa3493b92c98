//! `inet_sock_set_state(sk, oldstate, newstate)`: a socket changes its state. Recorded for client sockets of
//! watched Services, where a connection begins, opens, fails or begins to end.

use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::debug;
use tracer_ebpf::HookNumber;
use tracer_ebpf::record::{KIND_SOCKET, Socket, TCP};

use crate::maps;
use crate::memory::{self, Sock};

// include/net/tcp_states.h
const ESTABLISHED: i32 = 1;
const SYN_SENT: i32 = 2;
const FIN_WAIT1: i32 = 4;
const CLOSE: i32 = 7;
const CLOSE_WAIT: i32 = 8;

#[btf_tracepoint(function = "inet_sock_set_state")]
fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    let (old, new) = (ctx.arg::<i32>(1), ctx.arg::<i32>(2));
    let wanted = matches!(
        (old, new),
        (CLOSE, SYN_SENT)
            | (SYN_SENT, ESTABLISHED | CLOSE)
            | (ESTABLISHED, FIN_WAIT1 | CLOSE_WAIT | CLOSE)
    );
    if wanted {
        // SAFETY: include/trace/events/sock.h: the first argument is a `const struct sock *`.
        if let Some(sock) = unsafe { Sock::argument(&ctx, 0) } {
            run(&ctx, sock, old as u8, new as u8);
        }
    }
    0
}

#[inline(always)]
fn run(ctx: &BtfTracePointContext, sock: Sock, old: u8, new: u8) -> Option<()> {
    // The hook serves DCCP, SCTP and MPTCP's outer sockets as well.
    if sock.protocol() != u16::from(TCP) {
        return None;
    }
    let remote = sock.remote()?;
    if !maps::is_service(&remote) {
        return None;
    }
    let ends = sock.ends(&remote)?;
    let netns = sock.netns();
    if !maps::covers(netns) {
        return None;
    }
    // What a socket leaves CLOSE by is connect(2), called by its process; everything later is the network's doing.
    let (cgroup, pid, comm) =
        if i32::from(old) == CLOSE { memory::current() } else { (0, 0, [0; 16]) };
    debug!(ctx, "inet_sock_set_state: client socket, {} to {}", old, new);
    let hook = HookNumber::InetSockSetState;
    let mut reserved = maps::reserve::<Socket>(hook)?;
    *maps::record(&mut reserved) = Socket {
        time_ns: memory::now(),
        kind: KIND_SOCKET,
        hook: hook as u8,
        old,
        new,
        netns,
        ends,
        error: sock.error(),
        socket: sock.identity(),
        cgroup,
        pid,
        zero: 0,
        comm,
    };
    maps::submit(reserved);
    Some(())
}
