//! A terminal that is none: what a program draws on it can be read, keys can be pressed, and what it leaves behind is
//! said.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// The longest time that a test waits for anything. On the way there it waits for conditions only.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program of its own session, the leader of which is a shell that looks at the terminal before and after.
pub(crate) struct Terminal {
    child: Child,
    keys: File,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parser: vt100::Parser,
    bytes: Vec<u8>,
    is_over: bool,
}

/// What a program left.
pub(crate) struct Left {
    /// What it wrote after it had given the terminal back, or all of it if it never took it.
    pub(crate) text: String,
    /// Its exit status.
    pub(crate) status: i32,
    /// Whether stty(1) says the same as before.
    pub(crate) is_as_it_was: bool,
}

impl Terminal {
    /// Runs a program with arguments on a terminal of this size.
    pub(crate) fn run(
        (columns, rows): (u16, u16),
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Terminal {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).expect("a terminal");
        let slave = || Stdio::from(pair.slave.try_clone().expect("a descriptor"));
        // Ctrl-C on a terminal that is as usual is for the shell as well.
        let script = "trap : INT; before=$(stty -g); \"$@\"; status=$?; after=$(stty -g); \
                      test \"$before\" = \"$after\" && echo as-it-was; echo status-$status";
        let child = Command::new("setsid")
            .args(["--ctty", "sh", "-c", script, "sh", program])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(environment.iter().copied())
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .expect("setsid starts");
        drop(pair.slave);
        let seen = Arc::new(Seen::default());
        let cells = |n| NonZero::new(n).expect("a terminal has room");
        seen.lock().parser = vt100::Parser::new(cells(rows), cells(columns), 0);
        let keys = File::from(pair.master.try_clone().expect("a descriptor"));
        let inside = Arc::clone(&seen);
        thread::spawn(move || inside.read(pair.master));
        Terminal { child, keys, seen }
    }

    /// Presses keys, as the bytes that a terminal sends for them.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).expect("the terminal is there");
    }

    /// Waits until the screen is like this.
    ///
    /// # Panics
    /// If it does not come to that, or the program ends before.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let state = self.seen.wait(|state| state.is_over || is_so(state.parser.screen()));
        let text = state.parser.screen().contents();
        assert!(is_so(state.parser.screen()), "no {what} on the screen:\n{text}");
    }

    /// Waits until the program has ended.
    pub(crate) fn end(mut self) -> Left {
        let state = self.seen.wait(|state| state.is_over);
        assert!(state.is_over, "it does not end:\n{}", state.parser.screen().contents());
        let screen = state.parser.screen();
        assert!(!screen.alternate_screen(), "the other screen is still up");
        assert!(!screen.hide_cursor(), "the cursor is still hidden");
        let all = String::from_utf8_lossy(&state.bytes).replace("\r\n", "\n");
        drop(state);
        self.child.wait().expect("it was started here");
        let text = all.rsplit("\u{1b}[?1049l").next().unwrap_or_default();
        let text = text.trim_start_matches("\u{1b}[?25h").to_owned();
        let status = text.lines().find_map(|line| line.strip_prefix("status-"));
        let status = status.and_then(|status| status.parse().ok()).expect("the shell says it");
        Left { is_as_it_was: text.lines().any(|line| line == "as-it-was"), status, text }
    }
}

impl Drop for Terminal {
    /// A test that failed leaves nothing that goes on: closing the terminal hangs up on its session.
    fn drop(&mut self) {
        if !self.seen.lock().is_over {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn wait(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let end = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !is_so(&state) && Instant::now() < end {
            let waited = self.changed.wait_timeout(state, Duration::from_millis(100));
            state = waited.expect("nobody panics with it").0;
        }
        state
    }

    /// Reads until the last program has closed the terminal.
    fn read(&self, master: OwnedFd) {
        let mut master = File::from(master);
        let mut buffer = [0; 4096];
        loop {
            // EIO: nobody has the other end any more.
            let read = master.read(&mut buffer).unwrap_or(0);
            let mut state = self.lock();
            state.parser.process(&buffer[..read]);
            state.bytes.extend_from_slice(&buffer[..read]);
            state.is_over = read == 0;
            self.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    }
}
