//! Turns of responses that may last for hours: change streams and backups. Their number is limited,
//! and change streams end with the server.

use crate::problem::Problem;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// A limited number of turns.
pub struct Turns {
    free: Arc<Semaphore>,
    turns_max: usize,
    stop: watch::Sender<bool>,
}

/// The right to run a response, and the signal to end it.
pub struct Turn {
    _permit: OwnedSemaphorePermit,
    pub stop: watch::Receiver<bool>,
}

impl Turns {
    pub fn new(turns_max: usize) -> Turns {
        let turns_max = turns_max.min(Semaphore::MAX_PERMITS);
        Turns { free: Arc::new(Semaphore::new(turns_max)), turns_max, stop: watch::Sender::new(false) }
    }

    /// Returns a turn, or the problem that there is none. Does not wait: turns last long.
    pub fn begin(&self, if_none: &'static str) -> Result<Turn, Problem> {
        match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => Ok(Turn { _permit: permit, stop: self.stop.subscribe() }),
            Err(_) => Err(Problem::busy(if_none)),
        }
    }

    pub fn running(&self) -> u64 {
        self.turns_max.saturating_sub(self.free.available_permits()) as u64
    }

    /// Ends all responses with a turn, also later ones.
    pub fn end_all(&self) {
        self.stop.send_replace(true);
    }
}
