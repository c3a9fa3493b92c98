//! The last while of a trace, in bounded memory: events as frames of the trace format, each readable by itself, the oldest
//! of which go.

use std::collections::VecDeque;
use std::time::Duration;

use crate::codec::trace::{Advanced, Decoder, FrameEncoder};
use crate::model::{Event, EventKind, LossSource, MonoNs};

/// A frame is closed after so long, however little is in it: what is dropped is dropped by whole frames.
const FRAME: Duration = Duration::from_secs(5);

/// Events of the last while. What does not fit is dropped, and remembered as lost.
#[derive(Debug)]
pub struct Window {
    /// The most bytes that frames may take.
    most: usize,
    open: FrameEncoder,
    /// First and last time of the open frame's events.
    span: Option<(MonoNs, MonoNs)>,
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Until when events were dropped for want of room, and how many in all.
    dropped: Option<(MonoNs, u64)>,
}

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    first: MonoNs,
    last: MonoNs,
    events: u64,
}

impl Window {
    /// An empty window of at most so many bytes.
    pub fn new(most: usize) -> Window {
        Window {
            most,
            open: FrameEncoder::new(),
            span: None,
            frames: VecDeque::new(),
            bytes: 0,
            dropped: None,
        }
    }

    /// Adds an event. `gone` is shown those that had to go for it.
    pub fn push(&mut self, event: &Event, gone: &mut dyn FnMut(&Event)) {
        let time = event.time;
        let (first, _) = *self.span.get_or_insert((time, time));
        self.span = Some((first.min(time), time.max(first)));
        // One that no frame can hold is none of ours: its parts are bounded by what hooks and watches say.
        let is_full = self.open.push(event).unwrap_or(false);
        if is_full || time.since(first) >= FRAME {
            self.seal();
            while self.bytes > self.most && self.frames.len() > 1 {
                self.drop_oldest(true, gone);
            }
        }
    }

    /// Forgets what was over before a time, for it is not asked for any more. `gone` is shown what goes.
    pub fn forget(&mut self, before: MonoNs, gone: &mut dyn FnMut(&Event)) {
        while self.frames.front().is_some_and(|frame| frame.last < before) {
            self.drop_oldest(false, gone);
        }
        if self.dropped.is_some_and(|(until, _)| until < before) {
            self.dropped = None;
        }
    }

    /// Bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The time of the oldest event.
    pub fn began(&self) -> Option<MonoNs> {
        self.frames.front().map(|frame| frame.first).or(self.span.map(|(first, _)| first))
    }

    /// Shows every event from a time on, in the order in which they came; first of all what was lost of them.
    pub fn replay(&mut self, from: MonoNs, sink: &mut dyn FnMut(&Event)) {
        self.seal();
        if let Some((until, count)) = self.dropped.filter(|(until, _)| from <= *until) {
            let kind = EventKind::Lost { source: LossSource::Window, count, since: from };
            sink(&Event { time: until, kind });
        }
        for frame in self.frames.iter().filter(|frame| from <= frame.last) {
            frame.replay(&mut |event| {
                if from <= event.time {
                    sink(event);
                }
            });
        }
    }

    fn seal(&mut self) {
        let Some((first, last)) = self.span.take() else { return };
        let mut bytes = Vec::new();
        let trailer = std::mem::take(&mut self.open).finish(&mut bytes);
        bytes.shrink_to_fit();
        self.bytes += bytes.len();
        self.frames.push_back(Frame { bytes, first, last, events: trailer.events });
    }

    fn drop_oldest(&mut self, is_loss: bool, gone: &mut dyn FnMut(&Event)) {
        let Some(frame) = self.frames.pop_front() else { return };
        self.bytes -= frame.bytes.len();
        frame.replay(gone);
        if is_loss {
            let before = self.dropped.map_or(0, |(_, count)| count);
            self.dropped = Some((frame.last, before + frame.events));
        }
    }
}

impl Frame {
    fn replay(&self, sink: &mut dyn FnMut(&Event)) {
        let mut decoder = Decoder::new(self.first);
        decoder.feed(&self.bytes);
        decoder.close();
        // It was encoded here: what comes out is what went in.
        while decoder.advance() == Advanced::Event {
            sink(decoder.event());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::trace::samples;

    fn events() -> Vec<Event> {
        samples::realistic(7, 3_000, Duration::from_millis(100))
    }

    fn all(window: &mut Window, from: MonoNs) -> Vec<Event> {
        let mut seen = Vec::new();
        window.replay(from, &mut |event| seen.push(event.clone()));
        seen
    }

    #[test]
    fn what_fits_comes_back_as_it_was() {
        let events = events();
        let mut window = Window::new(usize::MAX);
        let mut gone = 0;
        for event in &events {
            window.push(event, &mut |_| gone += 1);
        }
        assert_eq!(all(&mut window, MonoNs(0)), events);
        assert_eq!(all(&mut window, MonoNs(0)), events, "asking takes nothing away");
        assert_eq!(gone, 0);
        let from = events[events.len() / 2].time;
        let rest: Vec<Event> = events.iter().filter(|it| from <= it.time).cloned().collect();
        assert_eq!(all(&mut window, from), rest);
    }

    #[test]
    fn what_does_not_fit_is_lost_and_said_to_be() {
        let events = events();
        let mut window = Window::new(32 * 1024);
        let mut gone = Vec::new();
        for event in &events {
            window.push(event, &mut |event| gone.push(event.clone()));
            assert!(window.bytes() <= 32 * 1024 + 16 * 1024, "{}", window.bytes());
        }
        assert!(!gone.is_empty());
        assert_eq!(gone, events[..gone.len()], "the oldest go, and each is shown");
        let seen = all(&mut window, events[0].time);
        let EventKind::Lost { source: LossSource::Window, count, since } = seen[0].kind else {
            panic!("{:?}", seen[0]);
        };
        assert_eq!((count, since), (gone.len() as u64, events[0].time));
        assert_eq!(seen[1..], events[gone.len()..]);
        // Of what is asked for nothing is lost.
        let later = all(&mut window, events[gone.len() + 1].time);
        assert!(!matches!(later[0].kind, EventKind::Lost { .. }), "{:?}", later[0]);
    }

    #[test]
    fn what_is_forgotten_is_not_lost() {
        let events = events();
        let mut window = Window::new(usize::MAX);
        for event in &events {
            window.push(event, &mut |_| {});
        }
        let before = events[events.len() / 2].time;
        let mut gone = 0;
        window.forget(before, &mut |event| {
            assert!(event.time < before);
            gone += 1;
        });
        assert!(gone > 0);
        let seen = all(&mut window, MonoNs(0));
        assert_eq!(seen, events[gone..]);
    }
}
