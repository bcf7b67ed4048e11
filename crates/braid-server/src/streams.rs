//! The running change streams: their number is limited, and all of them end with the server.

use crate::problem::Problem;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The change streams of a server.
pub struct Streams {
    turns: Arc<Semaphore>,
    streams_max: usize,
    stop: watch::Sender<bool>,
}

/// The right to run a stream, and the signal to end it.
pub struct StreamTurn {
    _permit: OwnedSemaphorePermit,
    pub stop: watch::Receiver<bool>,
}

impl Streams {
    pub fn new(streams_max: usize) -> Streams {
        let streams_max = streams_max.min(Semaphore::MAX_PERMITS);
        Streams { turns: Arc::new(Semaphore::new(streams_max)), streams_max, stop: watch::Sender::new(false) }
    }

    /// Returns a turn, or the problem that there are too many streams. Does not wait: a stream may
    /// run forever.
    pub fn begin(&self) -> Result<StreamTurn, Problem> {
        match Arc::clone(&self.turns).try_acquire_owned() {
            Ok(permit) => Ok(StreamTurn { _permit: permit, stop: self.stop.subscribe() }),
            Err(_) => Err(Problem::busy("too many change streams are open: end others, or try again")),
        }
    }

    pub fn running(&self) -> u64 {
        self.streams_max.saturating_sub(self.turns.available_permits()) as u64
    }

    /// Ends all streams, also later ones.
    pub fn end_all(&self) {
        self.stop.send_replace(true);
    }
}
