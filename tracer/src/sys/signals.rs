//! SIGINT and SIGTERM, turned into the wish to stop.

use std::io;
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use super::stop::Stop;

/// Exit status after a second signal: that of a shell's command ended by SIGINT.
const INTERRUPTED: i32 = 130;

/// From now on the first SIGINT or SIGTERM requests `stop`. A second one calls `clean_up` on a thread that
/// waits for nothing else, and exits the process at once with status 130.
///
/// A handler, not a blocked signal: a mask would be inherited by every child process, which could then not
/// be asked to end.
///
/// # Errors
/// If the handlers or the thread could not be had.
pub fn watch(stop: &Stop, clean_up: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stop = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for request in [true, false] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if request {
                    stop.request();
                }
            }
        });
        clean_up();
        std::process::exit(INTERRUPTED);
    })?;
    Ok(())
}
