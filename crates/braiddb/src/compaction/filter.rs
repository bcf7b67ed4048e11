//! Decides which versions a flush or merge keeps.
//!
//! Snapshots and the latest commit divide the sequence numbers into strata. Of a key's versions in
//! one stratum only the newest can be seen, and none if a range tombstone that the same snapshot
//! sees deletes it. Versions above the last stratum are all kept. A tombstone with nothing older
//! beneath it, here or in older runs, is dropped.

use crate::base::{EntryKind, EntryRef, RangeTombstoneSet, SequenceNumber};

/// Judges versions in order: key ascending, newest first.
#[derive(Debug)]
pub struct VersionFilter<'a> {
    strata: &'a [SequenceNumber],
    tombstones: &'a RangeTombstoneSet,
    key: Vec<u8>,
    seen: Option<usize>,
    dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// A snapshot may need it.
    Keep,
    /// No snapshot can see it.
    Drop,
}

impl<'a> VersionFilter<'a> {
    pub fn new(strata: &'a [SequenceNumber], tombstones: &'a RangeTombstoneSet) -> VersionFilter<'a> {
        VersionFilter { strata, tombstones, key: Vec::new(), seen: None, dropped: 0 }
    }

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

    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        self.tombstones.newest_covering(key, snapshot)
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Tombstones of one key, held back until an older version follows.
#[derive(Debug, Default)]
pub struct HeldTombstones {
    key: Vec<u8>,
    sequences: Vec<SequenceNumber>,
}

impl HeldTombstones {
    pub fn hold(&mut self, entry: &EntryRef<'_>) {
        debug_assert!(entry.kind == EntryKind::Tombstone);
        if self.sequences.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        self.sequences.push(entry.sequence);
    }

    pub fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    pub fn is_for_other_key(&self, key: &[u8]) -> bool {
        !self.sequences.is_empty() && self.key != key
    }

    pub fn forget(&mut self) -> u64 {
        let count = self.sequences.len() as u64;
        self.sequences.clear();
        count
    }

    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_>> {
        self.sequences.iter().map(|&sequence| EntryRef {
            key: &self.key,
            sequence,
            kind: EntryKind::Tombstone,
            value: &[],
        })
    }
}
