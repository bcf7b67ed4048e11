//! Whether what a transaction has read is still so.
//!
//! What it read is as of its snapshot. It may commit if none of that was written since, up to the commit: then it might as well
//! have run at that moment alone. So transactions that commit are serializable, in the order of their sequence numbers; one
//! that writes nothing stands where its snapshot does.
//!
//! What was written is found in the window of recent commits as long as that reaches back far enough, and else where it is
//! stored: whoever holds a snapshot keeps flushes and merges from dropping any trace of what was written after it.

use super::{ReadSet, Validation, Window};
use crate::{
    base::{Result, SequenceNumber},
    commit::Held,
    read::{self, ReadState},
};

/// What a transaction has read, and up to which commit it is known to be so still.
#[derive(Debug)]
pub struct Check {
    /// Sealed.
    pub reads: ReadSet,
    /// No commit up to this one has written any of it.
    pub upto: SequenceNumber,
    /// The snapshot that was read, if it is held.
    pub held: Option<Held>,
}

impl Check {
    /// A check of what was read at a snapshot.
    pub fn new(mut reads: ReadSet, snapshot: SequenceNumber, held: Option<Held>) -> Check {
        reads.seal();
        Check { reads, upto: snapshot, held }
    }

    /// Looks through the window ahead of the commit, so that little is left to do while others wait. Says what it found;
    /// `TooOld` if the window does not reach back so far.
    pub fn look_ahead(&mut self, window: &Window) -> Validation {
        let (validation, upto) = window.look_ahead(&self.reads, self.upto);
        if validation == Validation::Unchanged {
            self.upto = self.upto.max(upto);
        }
        validation
    }

    /// Looks where all is stored. `state` was loaded after commit `visible` was seen to be published, and the snapshot that
    /// was read was seen to be held after that.
    pub fn look_in(&mut self, state: &ReadState, visible: SequenceNumber) -> Result<Validation> {
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
