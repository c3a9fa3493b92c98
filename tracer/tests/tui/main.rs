//! `--tui`, driven through a terminal: it shows how things stand, heeds keys, and leaves the terminal as it was.

mod terminal;

use std::io::{self, Write};
use std::process::{Command, Stdio};

use terminal::Terminal;
use tracer::commands::screen::Screen;

const TRACER: &str = env!("CARGO_BIN_EXE_tracer");
const DESK: (u16, u16) = (100, 36);
const SMALL: (u16, u16) = (80, 24);

/// Asks the test below to panic, in a process of its own.
const PANICS: &str = "TRACER_TEST_PANICS";

fn is_left_out(test: &str) -> bool {
    let why = if !nix::unistd::geteuid().is_root() {
        "needs root"
    } else if !tracer::kernel::has_programs() {
        "built without BPF programs"
    } else {
        return false;
    };
    // Not eprintln!: the test harness would swallow it, and a test that is left out must be heard of.
    let _ = writeln!(io::stderr(), "left out: {test}: {why}");
    true
}

/// The number before these words on the screen.
fn number_before(screen: &str, words: &str) -> Option<u64> {
    let before = screen.split(words).next().filter(|before| before.len() < screen.len())?;
    let digits: String = before
        .trim_end()
        .chars()
        .rev()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits.chars().rev().collect::<String>().parse().ok()
}

#[test]
fn a_rollout_is_watched_a_story_is_read_and_q_ends_it_with_a_verdict() {
    if is_left_out("a_rollout_is_watched_a_story_is_read_and_q_ends_it_with_a_verdict") {
        return;
    }
    let arguments = ["lab", "--quick", "--tui", "--seed", "7"];
    let mut terminal = Terminal::run(DESK, TRACER, &arguments, &[]);
    terminal.wait_for("live view", vt100::Screen::alternate_screen);
    terminal.wait_for("request", |screen| {
        number_before(&screen.contents(), " requests").is_some_and(|n| n > 100)
    });
    terminal.wait_for("countdown", |screen| {
        let text = screen.contents();
        text.contains(" alive, ") && text.contains(" s at most") && text.contains('█')
    });
    // A picture comes in pieces, so that all of this need not be there at once.
    terminal.wait_for("late failure with its cause", |screen| {
        let text = screen.contents();
        let parts = ["Failures by cause", "stale-entry-reuse", "nothing was lost", " of 42 s"];
        number_before(&text, " of them late").is_some_and(|n| n > 0)
            && parts.iter().all(|part| text.contains(part))
    });
    // The one before the latest: it stays chosen, whatever comes.
    terminal.press(b"\x1b[A");
    terminal.press(b"\r");
    terminal.wait_for("story", |screen| {
        let text = screen.contents();
        text.contains("Esc back") && text.contains(", because of ")
    });
    terminal.press(b"\x1b");
    terminal.wait_for("list", |screen| screen.contents().contains("Enter its story"));
    terminal.press(b"q");
    let left = terminal.end();
    assert!(left.is_as_it_was, "{}", left.text);
    // Ended before the last entry expired, or not, as the keys came.
    assert!(matches!(left.status, 0 | 3), "{}", left.text);
    assert!(left.text.contains("interrupted; the lab is taken down"), "{}", left.text);
    assert!(left.text.contains("How it was measured"), "{}", left.text);
}

#[test]
fn a_trace_of_the_node_is_watched_and_ctrl_c_ends_it() {
    if is_left_out("a_trace_of_the_node_is_watched_and_ctrl_c_ends_it") {
        return;
    }
    // An address for documentation: nobody is asked anything there.
    let arguments = ["record", "--service", "192.0.2.1:80", "--tui"];
    let mut terminal = Terminal::run(SMALL, TRACER, &arguments, &[("NO_COLOR", "1")]);
    terminal.wait_for("live view", |screen| {
        let text = screen.contents();
        let parts = ["0 requests, none failed", "Failed requests: none so far"];
        screen.alternate_screen() && parts.iter().all(|part| text.contains(part))
    });
    terminal.press(b"\x03");
    let left = terminal.end();
    assert!(left.is_as_it_was, "{}", left.text);
    assert_eq!(left.status, 3, "{}", left.text);
    assert!(left.text.contains("INCONCLUSIVE"), "{}", left.text);
    assert!(!left.text.contains("\u{1b}[3"), "NO_COLOR: {:?}", left.text);
}

#[test]
fn who_is_in_a_hurry_has_the_terminal_back_too() {
    if is_left_out("who_is_in_a_hurry_has_the_terminal_back_too") {
        return;
    }
    let arguments = ["lab", "--quick", "--tui"];
    let mut terminal = Terminal::run(SMALL, TRACER, &arguments, &[]);
    terminal.wait_for("live view", |screen| screen.contents().contains(" requests, "));
    terminal.press(b"\x03");
    // Signals within a quarter of a second are the same wish, so it takes some. Either it hurries, or it was done first.
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        terminal.press(b"\x03");
    }
    let left = terminal.end();
    assert!(left.is_as_it_was, "{}", left.text);
    assert!(matches!(left.status, 130 | 0 | 3), "{}: {}", left.status, left.text);
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    let this = std::env::current_exe().expect("this test");
    let arguments = ["--exact", "panics_in_the_middle_of_a_picture", "--nocapture"];
    for how in ["drawing", "elsewhere"] {
        let this = this.to_str().expect("a path in UTF-8");
        let terminal = Terminal::run(SMALL, this, &arguments, &[(PANICS, how)]);
        let left = terminal.end();
        assert!(left.is_as_it_was, "{how}: {}", left.text);
        assert_eq!(left.status, 101, "{how}: {}", left.text);
        for part in ["tracer: said while the screen is up", &format!("panicked while {how}")] {
            assert!(left.text.contains(part), "{how}: {}", left.text);
        }
    }
}

/// Does nothing unless asked to: the other half of the test above.
#[test]
fn panics_in_the_middle_of_a_picture() {
    let Ok(how) = std::env::var(PANICS) else { return };
    let mut screen = Screen::take().expect("a terminal");
    tracer::cli::note("said while the screen is up");
    screen.draw(|frame| frame.render_widget("a picture", frame.area())).expect("it is drawn");
    if how == "drawing" {
        let _ = screen.draw(|_| panic!("panicked while {how}"));
    } else {
        let other = std::thread::spawn(move || panic!("panicked while {how}"));
        assert!(other.join().is_err());
        // The thread that draws does not know yet.
        screen.draw(|frame| frame.render_widget("again", frame.area())).expect("it does nothing");
        drop(screen);
        panic!("and so does this one");
    }
}

#[test]
fn without_a_terminal_it_is_refused_in_a_line() {
    for arguments in
        [&["lab", "--quick", "--tui"][..], &["record", "--service", "192.0.2.1:80", "--tui"][..]]
    {
        let output = Command::new(TRACER)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("tracer starts");
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "tracer: --tui needs a terminal on standard error; without it the same is said at the end\n"
        );
    }
}
