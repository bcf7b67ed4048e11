//! Operands of merge functions in a flush or merge: those of a key that nobody can tell apart any more become one entry, and a
//! value where what is beneath them is met.
//!
//! Once operands are met, the key's versions are held back until all were seen. Each one that no snapshot sees but through
//! operands, and that would be dropped beneath a value, is put beneath those operands instead: operands are piled up; a value,
//! or none, ends it. That may only be done if no run that is not merged can have a version in between; else the version stands.
//! A value in a blob is let stand as well. What cannot be made a value, since a function fails or is not known, stays operands:
//! nothing is lost.
//!
//! Of two versions that different snapshots see, the newer one may stand for the older one as well (commits pile operands up
//! without a look at snapshots): then what is beneath the older one is put beneath both.

use super::{VersionFilter, filter::Validation};
use crate::{
    base::{EntryKind, EntryRef, SequenceNumber},
    codec::{Base, MergeFunctions, Operands},
};

/// The length of a tree's number, which functions are not shown.
const TREE_ID_LEN: usize = 4;

/// A version that is held back.
#[derive(Debug)]
struct Held {
    sequence: SequenceNumber,
    kind: EntryKind,
    value: Vec<u8>,
    /// Of operands whose base was not met yet: the first commit that they stand for.
    open: Option<SequenceNumber>,
}

/// Judges versions as a [`VersionFilter`] does, and combines operands.
///
/// For each entry: first [`Sieve::finish`], if something is held for another key; then [`Sieve::judge`]. At the end
/// [`Sieve::finish`] once more.
#[derive(Debug)]
pub struct Sieve<'a> {
    filter: VersionFilter<'a>,
    functions: &'a MergeFunctions,
    key: Vec<u8>,
    /// Newest first.
    held: Vec<Held>,
}

/// An entry that was held back.
#[derive(Debug)]
pub struct Finished {
    key: Vec<u8>,
    sequence: SequenceNumber,
    kind: EntryKind,
    value: Vec<u8>,
}

impl Finished {
    /// As an entry.
    pub fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, sequence: self.sequence, kind: self.kind, value: &self.value }
    }
}

impl<'a> Sieve<'a> {
    /// Holds nothing.
    pub fn new(filter: VersionFilter<'a>, functions: &'a MergeFunctions) -> Sieve<'a> {
        Sieve { filter, functions, key: Vec::new(), held: Vec::new() }
    }

    /// Whether something is held for another key.
    #[inline]
    pub fn holds_other_than(&self, key: &[u8]) -> bool {
        !self.held.is_empty() && self.key != key
    }

    /// Judges the next version: whether it is to be written now. `may_be_between` says whether a run that is not merged may have
    /// a version of the key after the first of these commits and before the second.
    #[inline]
    pub fn judge(
        &mut self,
        entry: &EntryRef<'_>,
        may_be_between: impl Fn(SequenceNumber, SequenceNumber) -> bool,
    ) -> bool {
        let verdict = self.filter.judge(entry);
        if self.held.is_empty() && (entry.kind != EntryKind::Merge || verdict == Validation::Drop) {
            return verdict == Validation::Keep;
        }
        let stands = match verdict {
            Validation::Keep => {
                // It is what is beneath those that do not stand for it.
                let above = |held: &&mut Held| held.open.is_some_and(|lowest| lowest > entry.sequence);
                self.held.iter_mut().filter(above).for_each(|held| held.open = None);
                true
            }
            Validation::Drop => self.put_beneath(entry, may_be_between),
        };
        if stands {
            self.hold(entry);
        }
        false
    }

    /// How many versions were dropped.
    pub fn dropped(&self) -> u64 {
        self.filter.dropped()
    }

    fn hold(&mut self, entry: &EntryRef<'_>) {
        if self.held.is_empty() {
            self.key.clear();
            self.key.extend_from_slice(entry.key);
        }
        let operands = if entry.kind == EntryKind::Merge { Operands::decode(entry.value) } else { None };
        let open = operands.filter(|operands| operands.base == Base::Beneath);
        let open = open.map(|operands| entry.sequence.saturating_sub(operands.reach));
        self.held.push(Held { sequence: entry.sequence, kind: entry.kind, value: entry.value.to_vec(), open });
    }

    /// Puts a version that no snapshot sees by itself beneath the operands through which one does. Whether it must stand for the
    /// sake of some of them.
    fn put_beneath(
        &mut self,
        entry: &EntryRef<'_>,
        may_be_between: impl Fn(SequenceNumber, SequenceNumber) -> bool,
    ) -> bool {
        let mut stands = false;
        for held in &mut self.held {
            let Some(lowest) = held.open.filter(|lowest| *lowest > entry.sequence) else { continue };
            let Some(operands) = Operands::decode(&held.value) else { continue };
            let is_deleted = self.filter.newest_covering(entry.key, lowest - 1) > entry.sequence;
            held.open = None;
            let combined = match entry.kind {
                _ if may_be_between(entry.sequence, lowest) => None,
                _ if is_deleted => Some(operands.on(Base::Absent)),
                EntryKind::Tombstone => Some(operands.on(Base::Absent)),
                EntryKind::Value => Some(operands.on(Base::Value(entry.value))),
                EntryKind::Merge => Operands::decode(entry.value).map(|older| {
                    let reached = entry.sequence.saturating_sub(older.reach);
                    held.open = (older.base == Base::Beneath).then_some(reached);
                    operands.on_top_of(&older, held.sequence - reached)
                }),
                _ => None,
            };
            match combined {
                Some(value) => held.value = value,
                None => stands = true,
            }
        }
        stands
    }

    /// Ends a key: takes out what was held for it, newest first. `is_bottom` says whether no run that is not merged has a version
    /// of a key before a commit.
    pub fn finish(&mut self, is_bottom: impl Fn(&[u8], SequenceNumber) -> bool) -> Vec<Finished> {
        let key = std::mem::take(&mut self.key);
        let user_key = key.get(TREE_ID_LEN..).unwrap_or_default();
        let finish = |held: Held| {
            let Held { sequence, kind, mut value, open } = held;
            let finished = |kind, value| Finished { key: key.clone(), sequence, kind, value };
            if kind != EntryKind::Merge {
                return finished(kind, value);
            }
            if let Some(decoded) = Operands::decode(&value)
                && open.is_some_and(|lowest| is_bottom(&key, lowest))
            {
                value = decoded.on(Base::Absent);
            }
            match Operands::decode(&value).and_then(|decoded| self.functions.finish(user_key, &decoded)) {
                Some(Ok(value)) => return finished(EntryKind::Value, value),
                Some(Err(error)) => tracing::debug!(%error, "operands stay as they are"),
                None => {}
            }
            finished(EntryKind::Merge, self.functions.condense(user_key, value))
        };
        self.held.drain(..).map(finish).collect()
    }
}
