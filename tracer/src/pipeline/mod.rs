//! The one way of the data: events of all sources are put in order, recorded if asked, and correlated.
//! `lab`, `record` and `replay` differ only in which sources they start.
//! Deliberately absent: clocks (the caller says what time it is) and judging.

use std::time::Duration;

use crate::correlate::{Correlator, Timeline};
use crate::files::{FileError, TraceReader, TraceWriter};
use crate::model::{Event, EventKind, MonoNs, Seq, TraceHeader};
use crate::stream::Ordering;

/// How long an event is held back so that slower sources can still come before it. The ring buffer is
/// drained at least every 50 ms and requests arrive as they end; half a second is far beyond both.
pub const HOLD_BACK: Duration = Duration::from_millis(500);

/// Live events on their way to a timeline, and to a file.
#[derive(Debug)]
pub struct Pipeline {
    ordering: Ordering,
    correlator: Correlator,
    recording: Recording,
}

/// The trace file of a live run. A disk that fills up ends the recording, not the run.
#[derive(Debug)]
enum Recording {
    Off,
    On(Box<TraceWriter>),
    Failed(FileError),
}

impl Pipeline {
    /// An empty pipeline for a trace with this header, which `record` has already written, or failed to.
    pub fn new(header: &TraceHeader, record: Result<Option<TraceWriter>, FileError>) -> Pipeline {
        let recording = match record {
            Ok(None) => Recording::Off,
            Ok(Some(writer)) => Recording::On(Box::new(writer)),
            Err(error) => Recording::Failed(error),
        };
        let ordering = Ordering::new(HOLD_BACK);
        Pipeline { ordering, correlator: Correlator::new(header), recording }
    }

    /// Takes an event of any source.
    pub fn accept(&mut self, event: Event) {
        self.ordering.push(event);
    }

    /// Passes on what is old enough, and lets the trace file reach the disk now and then.
    pub fn tick(&mut self, now: MonoNs) {
        let Pipeline { ordering, correlator, recording } = self;
        ordering.release(now, &mut |seq, event| {
            correlator.apply(seq, &event);
            recording.append(&event);
        });
        recording.tick();
    }

    /// What was correlated until now, to look at: the way goes on. What is younger than half a second may still be
    /// missing.
    pub fn so_far(&self) -> Correlator {
        self.correlator.clone()
    }

    /// Passes on the rest, and that tracing ended now. The second value says how the recording failed, if it
    /// did: the timeline is whole all the same.
    pub fn finish(self, now: MonoNs) -> (Timeline, Result<(), FileError>) {
        let Pipeline { mut ordering, mut correlator, mut recording } = self;
        ordering.push(Event { time: now, kind: EventKind::Ended });
        ordering.flush(&mut |seq, event| {
            correlator.apply(seq, &event);
            recording.append(&event);
        });
        (correlator.finish(), recording.finish())
    }
}

impl Recording {
    fn append(&mut self, event: &Event) {
        self.attempt(|writer| writer.append(event));
    }

    fn tick(&mut self) {
        self.attempt(TraceWriter::tick);
    }

    fn attempt(&mut self, deed: impl FnOnce(&mut TraceWriter) -> Result<(), FileError>) {
        if let Recording::On(writer) = self
            && let Err(error) = deed(writer)
        {
            *self = Recording::Failed(error);
        }
    }

    fn finish(self) -> Result<(), FileError> {
        match self {
            Recording::Off => Ok(()),
            Recording::On(writer) => writer.finish().map(drop),
            Recording::Failed(error) => Err(error),
        }
    }
}

/// How many events are correlated between two words of progress.
const PROGRESS_EVERY: u64 = 1 << 16;

/// Correlates a recorded trace: the same events in the same order as the live run saw them. `progress` is
/// shown the reader now and then.
///
/// # Errors
/// If the file can't be read any further. Damage inside it is no error but an event.
pub fn replay(
    reader: &mut TraceReader,
    progress: &mut dyn FnMut(&TraceReader),
) -> Result<Timeline, FileError> {
    let mut correlator = Correlator::new(reader.header());
    let mut seq = Seq(0);
    while let Some(event) = reader.advance()? {
        correlator.apply(seq, event);
        seq = Seq(seq.0 + 1);
        if seq.0.is_multiple_of(PROGRESS_EVERY) {
            progress(reader);
        }
    }
    Ok(correlator.finish())
}
