//! Combines merge operands in flushes and merges. Operands of a key that no snapshot separates
//! become one entry, or a value once their base is met.
//!
//! From a key's first operand on, its versions are held back until all were seen. A version visible
//! only through operands above it is put beneath them: an operand extends the list, a value becomes
//! its base. It stays an entry if a run outside the merge may have a version in between, or if it
//! is a blob reference. Operands of failing or unregistered functions stay.
//!
//! Commits stack operands without regard to snapshots. So the newer of two versions that different
//! snapshots see may include the older one (its reach). A base below the older one then goes
//! beneath both.

use super::{VersionFilter, filter::Validation};
use crate::{
    base::{EntryKind, EntryRef, SequenceNumber},
    codec::{Base, MergeFunctions, Operands},
};

/// Merge functions get the key without its tree id.
const TREE_ID_LEN: usize = 4;

#[derive(Debug)]
struct Held {
    sequence: SequenceNumber,
    kind: EntryKind,
    value: Vec<u8>,
    /// For operands without their base: the first commit that they include.
    open: Option<SequenceNumber>,
}

/// A [`VersionFilter`] that combines operands. Before the first entry of another key, and at the
/// end, call [`Sieve::finish`].
#[derive(Debug)]
pub struct Sieve<'a> {
    filter: VersionFilter<'a>,
    functions: &'a MergeFunctions,
    key: Vec<u8>,
    held: Vec<Held>,
}

/// A version after the key's end, to be written.
#[derive(Debug)]
pub struct Finished {
    key: Vec<u8>,
    sequence: SequenceNumber,
    kind: EntryKind,
    value: Vec<u8>,
}

impl Finished {
    pub fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, sequence: self.sequence, kind: self.kind, value: &self.value }
    }
}

impl<'a> Sieve<'a> {
    pub fn new(filter: VersionFilter<'a>, functions: &'a MergeFunctions) -> Sieve<'a> {
        Sieve { filter, functions, key: Vec::new(), held: Vec::new() }
    }

    #[inline]
    pub fn holds_other_than(&self, key: &[u8]) -> bool {
        !self.held.is_empty() && self.key != key
    }

    /// True to write the version now. `may_be_between(a, b)`: a run outside the merge may have a
    /// version of the key after commit `a` and before `b`.
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
                // The entry is the base of held operands that do not include it.
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

    /// Puts a version that no snapshot sees by itself beneath the held operands. Returns true if
    /// some of them need it as an entry.
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

    /// Returns the key's held versions, newest first. `is_bottom`: no run outside the merge has a
    /// version of a key before a commit.
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
