//! Which versions a flush or merge keeps.
//!
//! The snapshots in use, and now, cut the sequence numbers into strata. Of a key's versions in one stratum only the
//! newest can be seen, and not even that one if a range tombstone seen by the same snapshot deletes it. Versions above
//! the last stratum are all kept. A tombstone below which nothing is left, neither here nor in older runs, goes.

use crate::base::{EntryKind, EntryRef, RangeTombstoneSet, SequenceNumber};

/// Sees all versions in order (key ascending, newest first) and says which to keep.
#[derive(Debug)]
pub struct VersionFilter<'a> {
    strata: &'a [SequenceNumber],
    tombstones: &'a RangeTombstoneSet,
    key: Vec<u8>,
    seen: Option<usize>,
    dropped: u64,
}

/// What becomes of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// It is needed.
    Keep,
    /// No snapshot can see it.
    Drop,
}

impl<'a> VersionFilter<'a> {
    /// A filter for these strata (ascending), where `tombstones` are those that are written out beside the entries.
    pub fn new(strata: &'a [SequenceNumber], tombstones: &'a RangeTombstoneSet) -> VersionFilter<'a> {
        VersionFilter { strata, tombstones, key: Vec::new(), seen: None, dropped: 0 }
    }

    /// Judges the next version.
    pub fn judge(&mut self, entry: &EntryRef<'_>) -> Validation {
        if self.seen.is_none() || self.key != entry.key {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            self.seen = None;
        }
        let stratum = self.strata.partition_point(|&s| s < entry.sequence);
        let Some(&snapshot) = self.strata.get(stratum) else {
            self.seen = Some(stratum);
            return Validation::Keep;
        };
        let superseded = self.seen == Some(stratum);
        self.seen = Some(stratum);
        if superseded || self.tombstones.newest_covering(entry.key, snapshot) > entry.sequence {
            self.dropped += 1;
            return Validation::Drop;
        }
        Validation::Keep
    }

    /// The newest of the range tombstones at or below `snapshot` that covers `key`; 0 if there is none.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.newest_covering(key, snapshot)
    }

    /// How many versions were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Tombstones held back until it is known whether anything older of their key follows.
#[derive(Debug, Default)]
pub struct HeldTombstones {
    key: Vec<u8>,
    sequences: Vec<SequenceNumber>,
}

impl HeldTombstones {
    /// Holds a tombstone back. The caller has let go of those of other keys before.
    pub fn hold(&mut self, entry: &EntryRef<'_>) {
        debug_assert!(entry.kind == EntryKind::Tombstone);
        if self.sequences.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        self.sequences.push(entry.sequence);
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// Whether any is held for another key than `key`.
    pub fn is_for_other_key(&self, key: &[u8]) -> bool {
        !self.sequences.is_empty() && self.key != key
    }

    /// Forgets those held; how many there were.
    pub fn forget(&mut self) -> u64 {
        let count = self.sequences.len() as u64;
        self.sequences.clear();
        count
    }

    /// Those held, newest first, as entries; they stay held.
    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.sequences.iter().map(|&sequence| EntryRef {
            key: &self.key,
            sequence,
            kind: EntryKind::Tombstone,
            value: &[],
        })
    }
}
