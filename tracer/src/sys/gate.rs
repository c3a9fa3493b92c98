//! The gate that everything passes which makes something outside of this process: a tool that runs, a child
//! that starts. It can be closed, once and for good, by an exit that cannot wait for other threads: what they
//! are about to make would outlive the clean-up.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::thread;
use std::time::Duration;

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    static IS_CLOSER: Cell<bool> = const { Cell::new(false) };
}

/// Being inside the gate: it does not close for as long as this lives.
pub(super) struct Pass(
    #[expect(dead_code, reason = "held, not read")] Option<RwLockReadGuard<'static, ()>>,
);

/// Passes the gate. Behind a closed gate this never returns, except for the thread that closed it.
pub(super) fn pass() -> Pass {
    let guard = || GATE.read().unwrap_or_else(PoisonError::into_inner);
    Pass((!IS_CLOSER.get()).then(guard))
}

/// Closes the gate for every other thread and waits until those inside have come out, at most for
/// `patience`: a tool may wait for something itself. False if someone may still be inside.
pub(super) fn close(patience: Duration) -> bool {
    IS_CLOSER.set(true);
    let (closed, is_closed) = mpsc::channel();
    let closing = thread::Builder::new().spawn(move || {
        // A writer that waits goes before readers that come later.
        std::mem::forget(GATE.write().unwrap_or_else(PoisonError::into_inner));
        // The other end may have lost its patience.
        let _ = closed.send(());
    });
    closing.is_ok() && is_closed.recv_timeout(patience).is_ok()
}
