//! Entries of a leaf, decoded ahead of a cursor: what a scan merges with the rows of views.

use super::{Memtable, entry::EntryPtr};
use crate::base::{Beyond, EntryKind, RowSlots, SequenceNumber, near_lane};
use std::sync::Arc;

/// One entry a key, those that a snapshot sees. A lane is the rank of a key in its leaf.
///
/// Invariant: the rows borrow from the arena of `memtable`, and are cleared before that goes.
#[derive(Debug, Default)]
pub struct EntryBatch {
    slots: RowSlots,
    lanes: u32,
    tombstones: u32,
    beyond: Beyond,
    /// Declared last, so that it goes last.
    memtable: Option<Arc<Memtable>>,
}

impl EntryBatch {
    /// Its rows.
    #[inline(always)]
    pub fn slots(&self) -> &RowSlots {
        &self.slots
    }

    /// The lanes of its rows.
    #[inline]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The lanes whose rows are tombstones.
    #[inline]
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    /// What comes after its rows.
    #[inline]
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    /// Forgets all rows, and the memtable.
    pub fn release(&mut self) {
        self.clear();
        self.memtable = None;
    }

    fn clear(&mut self) {
        self.slots.clear();
        (self.lanes, self.tombstones, self.beyond) = (0, 0, Beyond::More);
    }

    /// Says that nothing comes after no rows.
    pub fn end(&mut self) {
        self.clear();
        self.beyond = Beyond::End;
    }

    /// Takes in the entries of `ranks` of a leaf of `memtable`, as far as they are key and value or a tombstone.
    pub(super) fn take_in(
        &mut self,
        memtable: &Arc<Memtable>,
        entries: &[Option<EntryPtr<'static>>],
        ranks: u32,
        is_forward: bool,
        snapshot: SequenceNumber,
    ) {
        self.clear();
        if self.memtable.as_ref().is_none_or(|kept| !Arc::ptr_eq(kept, memtable)) {
            self.memtable = Some(Arc::clone(memtable));
        }
        let mut rest = ranks;
        while rest != 0 {
            let lane = near_lane(rest, is_forward);
            rest &= !(1 << lane);
            let Some(entry) = entries[lane].and_then(|newest| newest.visible_at(snapshot)) else { continue };
            match entry.kind() {
                EntryKind::Value => {}
                EntryKind::Tombstone => self.tombstones |= 1 << lane,
                _ => {
                    self.beyond = Beyond::Row(lane);
                    return;
                }
            }
            let (bytes, key_len) = entry.row();
            self.slots.set(lane, bytes, key_len);
            self.slots.set_sequence(lane, entry.sequence());
            self.lanes |= 1 << lane;
        }
    }

    /// Keeps the rows whose keys are wanted, which come first.
    pub fn keep(&mut self, is_forward: bool, is_kept: impl Fn(&[u8]) -> bool) {
        let kept = self.slots.kept(self.lanes, is_forward, is_kept);
        let others = self.lanes & !kept;
        if others != 0 {
            self.lanes = kept;
            self.beyond = Beyond::Outside(near_lane(others, is_forward));
        }
    }
}
