//! Captures are read and their entries inferred on a thread of their own, a little ahead of the correlation: each
//! takes about as long as the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use super::packets::Packets;
use crate::files::FileError;
use crate::model::Event;

/// Events handed over at once.
const BATCH: usize = 512;
/// Batches that may wait: they bound the memory.
const WAITING: usize = 8;

type Batch = Result<Vec<Event>, FileError>;

/// The events of captures, made ahead.
pub(super) struct Ahead {
    batches: Receiver<Batch>,
    current: std::vec::IntoIter<Event>,
    thread: Option<JoinHandle<Packets>>,
    position: Arc<AtomicU64>,
    notes: Vec<String>,
}

impl Ahead {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be none.
    pub(super) fn start(packets: Packets) -> std::io::Result<Ahead> {
        let (sender, batches) = mpsc::sync_channel(WAITING);
        let position = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&position);
        let thread = thread::Builder::new()
            .name("captures".to_owned())
            .spawn(move || read(packets, &sender, &shared))?;
        let current = Vec::new().into_iter();
        Ok(Ahead { batches, current, thread: Some(thread), position, notes: Vec::new() })
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Result<Option<Event>, FileError> {
        loop {
            if let Some(event) = self.current.next() {
                return Ok(Some(event));
            }
            match self.batches.recv() {
                Ok(batch) => self.current = batch?.into_iter(),
                // The thread is done.
                Err(mpsc::RecvError) => {
                    match self.thread.take().map(JoinHandle::join) {
                        Some(Ok(packets)) => self.notes = packets.notes(),
                        Some(Err(panic)) => std::panic::resume_unwind(panic),
                        None => {}
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// How many bytes of the files have been read.
    pub(super) fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// What a reader must know, once all is read.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

/// Reads to the end, or until nobody wants more.
fn read(mut packets: Packets, sender: &SyncSender<Batch>, position: &AtomicU64) -> Packets {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let (is_over, error) = match packets.next() {
            Ok(Some(event)) => {
                batch.push(event);
                (false, None)
            }
            Ok(None) => (true, None),
            Err(error) => (true, Some(error)),
        };
        if batch.len() < BATCH && !is_over {
            continue;
        }
        position.store(packets.position(), Ordering::Relaxed);
        let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
        if sender.send(Ok(full)).is_err() {
            return packets;
        }
        if let Some(error) = error {
            // What came before the error has been handed over.
            let _ = sender.send(Err(error));
        }
        if is_over {
            return packets;
        }
    }
}
