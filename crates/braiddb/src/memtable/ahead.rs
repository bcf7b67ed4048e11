//! Entries of a leaf, decoded ahead of a cursor: a scan merges them with the rows of views.

use super::{Memtable, entry::EntryPtr};
use crate::base::{Beyond, EntryKind, RowSlots, SequenceNumber, near_lane};
use std::sync::Arc;

/// One entry a key, as visible at a snapshot. Lane: the rank of a key in its leaf.
///
/// INVARIANT: the rows borrow from the arena of `memtable`, and are cleared before it is dropped.
#[derive(Debug, Default)]
pub struct EntryBatch {
    slots: RowSlots,
    lanes: u32,
    tombstones: u32,
    beyond: Beyond,
    /// Declared last, to be dropped last.
    memtable: Option<Arc<Memtable>>,
}

impl EntryBatch {
    #[inline(always)]
    pub fn slots(&self) -> &RowSlots {
        &self.slots
    }

    #[inline]
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    #[inline]
    pub fn tombstones(&self) -> u32 {
        self.tombstones
    }

    #[inline]
    pub fn beyond(&self) -> Beyond {
        self.beyond
    }

    pub fn release(&mut self) {
        self.clear();
        self.memtable = None;
    }

    fn clear(&mut self) {
        self.slots.clear();
        (self.lanes, self.tombstones, self.beyond) = (0, 0, Beyond::More);
    }

    pub fn end(&mut self) {
        self.clear();
        self.beyond = Beyond::End;
    }

    /// Decodes the entries of `ranks` up to the first that is neither a value nor a tombstone.
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

    pub fn keep(&mut self, is_forward: bool, is_kept: impl Fn(&[u8]) -> bool) {
        let kept = self.slots.kept(self.lanes, is_forward, is_kept);
        let others = self.lanes & !kept;
        if others != 0 {
            self.lanes = kept;
            self.beyond = Beyond::Outside(near_lane(others, is_forward));
        }
    }
}
