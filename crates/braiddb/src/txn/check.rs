//! Validates the reads of a transaction.
//!
//! A transaction reads at its snapshot. It may commit if no later commit has written any of its
//! reads: it might then have run at the moment of its commit. So committed transactions are
//! serializable in the order of their sequence numbers; a read-only transaction is ordered at its
//! snapshot.
//!
//! Conflicting writes are found in the window of recent commits if it reaches back far enough, else
//! in the stored data: a snapshot keeps flushes and merges from dropping later writes.

use super::{ReadSet, Validation, Window};
use crate::{
    base::{Result, SequenceNumber},
    commit::Held,
    read::{self, ReadState},
};

#[derive(Debug)]
pub struct Check {
    pub reads: ReadSet,
    /// No commit up to this one has written any of the reads.
    pub upto: SequenceNumber,
    pub held: Option<Held>,
}

impl Check {
    pub fn new(mut reads: ReadSet, snapshot: SequenceNumber, held: Option<Held>) -> Check {
        reads.seal();
        Check { reads, upto: snapshot, held }
    }

    /// Checks the window before the commit, so that little is left to check under the write lock.
    pub fn precheck(&mut self, window: &Window) -> Validation {
        let (validation, upto) = window.precheck(&self.reads, self.upto);
        if validation == Validation::Unchanged {
            self.upto = self.upto.max(upto);
        }
        validation
    }

    /// `state` was loaded after commit `visible` was published, then the snapshot was taken.
    pub fn check_state(&mut self, state: &ReadState, visible: SequenceNumber) -> Result<Validation> {
        for key in self.reads.keys() {
            if read::newest_sequence(state, key, visible)? > self.upto {
                return Ok(Validation::Changed);
            }
        }
        for (start, end) in self.reads.ranges().iter() {
            if read::is_written_after(state, start, end, self.upto)? {
                return Ok(Validation::Changed);
            }
        }
        self.upto = self.upto.max(visible);
        Ok(Validation::Unchanged)
    }
}
