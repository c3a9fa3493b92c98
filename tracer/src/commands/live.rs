//! `--tui`: the report while the trace goes on, on a thread of its own. It shows what would be said if the trace ended
//! now, from a copy of what was correlated so far: there is no second way to count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use nix::sys::signal::{Signal, raise};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::judging;
use super::screen::{self, Screen};
use crate::cli::note;
use crate::correlate::Correlator;
use crate::model::TraceHeader;
use crate::pipeline::Pipeline;
use crate::report::Report;
use crate::report::live::{Progress, View, Wish, draw};
use crate::sys::{clock, stop::Stop};
use crate::verdict;

/// How often the countdowns move, at least.
const REDRAW: Duration = Duration::from_millis(200);
/// How often the report is made anew, at most; and never so often that it takes more than a tenth of the time.
const ANEW: Duration = Duration::from_millis(500);

/// Options of a live view.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Options {
    /// Show the report on the whole terminal while it grows; the arrow keys choose a failure, Enter tells its story
    #[arg(long)]
    tui: bool,
}

impl Options {
    /// Whether there is a terminal for it, if it is wanted.
    ///
    /// # Errors
    /// If there is none.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.tui { screen::check() } else { Ok(()) }
    }

    /// Whether it is wanted.
    pub fn is_wanted(&self) -> bool {
        self.tui
    }

    /// Starts it, if it is wanted. `of` is how long the trace will last, where that is known.
    ///
    /// # Errors
    /// If the terminal or a thread can't be had.
    pub fn start(
        &self,
        header: &TraceHeader,
        judging: &verdict::Settings,
        of: Option<Duration>,
        stop: &Stop,
    ) -> anyhow::Result<Live> {
        if !self.tui {
            return Ok(Live(None));
        }
        let screen = Screen::take()?;
        let is_wanted = Arc::new(AtomicBool::new(true));
        let over = Stop::default();
        // One is on its way at most: the next is wanted only when this one was taken.
        let (copies, copy) = mpsc::sync_channel(1);
        let showing = Showing {
            screen,
            header: header.clone(),
            judging: *judging,
            of,
            stop: stop.clone(),
            over: over.clone(),
            is_wanted: Arc::clone(&is_wanted),
            copies: copy,
        };
        let thread = thread::Builder::new()
            .name("live view".to_owned())
            .spawn(move || showing.show())
            .context("starting the thread of the live view")?;
        Ok(Live(Some(Running { is_wanted, copies, over, thread: Some(thread) })))
    }
}

/// A live view, or none. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Live(Option<Running>);

#[derive(Debug)]
struct Running {
    is_wanted: Arc<AtomicBool>,
    copies: SyncSender<Correlator>,
    over: Stop,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Live {
    /// Lets it see how far things have come, if it wants to know.
    pub fn beat(&self, pipeline: &Pipeline) {
        if let Live(Some(running)) = self
            && running.is_wanted.swap(false, Ordering::AcqRel)
        {
            // If it has ended, nobody waits for the copy.
            drop(running.copies.try_send(pipeline.so_far()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.request();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => note(format_args!("the live view ended early: {error:#}")),
            Some(Err(_)) => note("the live view ended early: it panicked"),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}

/// What the view's thread has.
#[derive(Debug)]
struct Showing {
    screen: Screen,
    header: TraceHeader,
    judging: verdict::Settings,
    of: Option<Duration>,
    stop: Stop,
    over: Stop,
    is_wanted: Arc<AtomicBool>,
    copies: Receiver<Correlator>,
}

impl Showing {
    fn show(mut self) -> anyhow::Result<()> {
        let color = std::env::var_os("NO_COLOR").is_none();
        let mut view = View::new(color);
        let mut report = self.report(Correlator::new(&self.header));
        let mut next = None;
        while !self.over.is_requested() {
            match self.copies.try_recv() {
                Ok(copy) => {
                    let began = Instant::now();
                    report = self.report(copy);
                    next = Some(Instant::now() + ANEW.max(10 * began.elapsed()));
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => break,
            }
            if next.is_some_and(|next| Instant::now() >= next) {
                next = None;
                self.is_wanted.store(true, Ordering::Release);
            }
            let progress = Progress {
                now: clock::now().since(self.header.began).as_secs_f64(),
                of: self.of.map(|of| of.as_secs_f64()),
                is_ending: self.stop.is_requested(),
            };
            self.screen.draw(|frame| draw(frame, &report, &view, progress)).context("drawing")?;
            if event::poll(REDRAW).context("waiting for keys")? {
                self.heed(&event::read().context("reading keys")?, &mut view, &report)?;
            }
        }
        Ok(())
    }

    fn report(&self, so_far: Correlator) -> Report {
        judging::report(&self.header, &so_far.finish(), &self.judging)
    }

    fn heed(&mut self, event: &Event, view: &mut View, report: &Report) -> anyhow::Result<()> {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            // If it has another size now, the next picture has too.
            return Ok(());
        };
        let control = modifiers.contains(KeyModifiers::CONTROL);
        match code {
            // As the terminal would have sent it, if we had not taken it: a second one is in a hurry.
            KeyCode::Char('c') if control => raise(Signal::SIGINT)?,
            KeyCode::Char('l') if control => self.screen.forget().context("drawing")?,
            KeyCode::Char('q') => self.stop.request(),
            KeyCode::Up | KeyCode::Char('k') => view.follow(Wish::Up, report),
            KeyCode::Down | KeyCode::Char('j') => view.follow(Wish::Down, report),
            KeyCode::Enter => view.follow(Wish::Open, report),
            KeyCode::Esc | KeyCode::Backspace => view.follow(Wish::Back, report),
            KeyCode::End | KeyCode::Char('G') => view.follow(Wish::Latest, report),
            _ => {}
        }
        Ok(())
    }
}
