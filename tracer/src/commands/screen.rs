//! The whole terminal, taken for a live view and given back as it was: also after a panic, and by an exit in a hurry.
//! It is that of standard error, so that the report on standard output may go where it likes.

use std::cell::Cell;
use std::io::{self, IsTerminal, Stderr};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use anyhow::{Context, ensure};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{execute, queue};
use ratatui::{Frame, Terminal};

use crate::cli;

/// Whether the terminal is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Who draws holds it, so that the terminal is not given back in the middle of a picture.
static DRAWING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread draws: it holds [`DRAWING`] then, also while it panics.
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

/// The terminal. Given back when it is dropped.
#[derive(Debug)]
pub struct Screen(Terminal<CrosstermBackend<Stderr>>);

/// Whether there is a screen to take.
///
/// # Errors
/// If standard error is no terminal.
pub fn check() -> anyhow::Result<()> {
    ensure!(
        io::stderr().is_terminal(),
        "--tui needs a terminal on standard error; without it the same is said at the end"
    );
    Ok(())
}

impl Screen {
    /// Takes the terminal. Notes are held until it is given back.
    ///
    /// # Errors
    /// As [`check`], or if the terminal can't be set up; then it is as it was.
    pub fn take() -> anyhow::Result<Screen> {
        check()?;
        give_back_after_panics();
        let take = || -> io::Result<Screen> {
            let _drawing = lock();
            enable_raw_mode()?;
            TAKEN.store(true, Ordering::Release);
            cli::hold_notes();
            execute!(io::stderr(), EnterAlternateScreen)?;
            Terminal::new(CrosstermBackend::new(io::stderr())).map(Screen)
        };
        take().inspect_err(|_| give_back()).context("taking the terminal for --tui")
    }

    /// Draws a picture; nothing once the terminal is given back.
    ///
    /// # Errors
    /// If the terminal can't be written to.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let _drawing = lock();
        if !TAKEN.load(Ordering::Acquire) {
            return Ok(());
        }
        DRAWS.set(true);
        let drawn = self.0.draw(picture).map(drop);
        DRAWS.set(false);
        drawn
    }

    /// Draws the next picture whole: something else wrote to the terminal.
    ///
    /// # Errors
    /// If the terminal can't be written to.
    pub fn forget(&mut self) -> io::Result<()> {
        self.0.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, if it was taken, and says the notes that were held. Does not fail: there is nobody to tell.
pub fn give_back() {
    if !TAKEN.swap(false, Ordering::AcqRel) {
        return;
    }
    // A thread that panics while it draws has the lock already, and nobody else draws.
    let _drawing = (!DRAWS.get()).then(lock);
    let _ = queue!(io::stderr(), LeaveAlternateScreen);
    let _ = execute!(io::stderr(), Show);
    let _ = disable_raw_mode();
    cli::say_notes();
}

fn lock() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a panic has to say must be readable, whichever thread panics.
fn give_back_after_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            usual(info);
        }));
    });
}
