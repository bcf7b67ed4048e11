//! Builds, repairs and verifies indexes.
//!
//! A repair first removes the entries that match no record, then adds missing ones, in chunks of one
//! transaction each. Correct entries stay all the time, so a unique index refuses duplicates
//! meanwhile too. Concurrent writers keep their own entries right; a record or entry that changes
//! under a chunk makes it conflict and repeat, with fewer of them.

use crate::{
    builder::store_definitions,
    codec::ValueCodec,
    entry::{Entries, Index},
    error::{Error, Result},
    key::{self, Bounds, TupleKey},
    schema::Schema,
    source::{Pair, Source},
    text,
    tree::TypedTree,
};
use braiddb::Transaction;
use std::{ops::Bound, time::SystemTime};

/// Maximum records or entries of a transaction.
const CHUNK_LEN: usize = 256;

/// A transaction has no further records after this number of bytes, which bounds its memory.
const CHUNK_BYTES: usize = 1 << 20;

/// Conflicts in a row before a chunk makes all other writers wait. By then a chunk has one pair.
const CONFLICTS_MAX: u32 = CHUNK_LEN.ilog2();

/// Maximum pairs of a transaction for which all other writers wait.
const EXCLUSIVE_LEN: usize = 32;

/// Expiry times of copies may differ by this much, in microseconds.
const EXPIRY_TOLERANCE_US: u128 = 1_000_000;

/// A difference between an index and the records: see [`TypedTree::verify_indexes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexProblem {
    /// The index.
    pub index: String,
    /// The key of the record, in text form.
    pub key: String,
    /// The difference.
    pub kind: IndexProblemKind,
}

/// A kind of difference between an index and the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexProblemKind {
    /// The record has no entry for its value.
    Missing,
    /// The entry's record is absent or has another value.
    Stale,
    /// Record and entry expire at different times.
    Expiry,
    /// Another record has the same value in a unique index.
    Duplicate,
    /// The value of the record, or the key of the entry, cannot be decoded.
    Unreadable,
}

/// Result of [`TypedTree::verify_indexes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexReport {
    /// Verified records.
    pub records: u64,
    /// Verified index entries.
    pub entries: u64,
    /// The differences, at most [`IndexReport::PROBLEMS_MAX`].
    pub problems: Vec<IndexProblem>,
}

impl IndexReport {
    /// Maximum problems in a report; a verification ends with the last of them.
    pub const PROBLEMS_MAX: usize = 1000;

    fn add(&mut self, index: &str, key: &[u8], kind: IndexProblemKind) {
        self.problems.push(IndexProblem { index: index.to_owned(), key: text::show(key), kind });
    }
}

/// Changes of one chunk.
type Work<'w> = dyn FnMut(&Transaction, Pair) -> Result<()> + 'w;

impl<K: TupleKey, V, C: ValueCodec<V>> TypedTree<K, V, C> {
    /// Builds the declared indexes that are not complete.
    pub(crate) fn build_indexes(&self) -> Result<()> {
        let schema = &self.schema;
        let definitions = schema.definitions(&Source::Latest(&schema.db))?;
        for found in definitions.indexes.iter().filter(|index| !index.ready) {
            let index = schema.index(&found.name)?;
            self.repair(index)?;
            schema.update(|tx| {
                let mut stored = schema.definitions(&Source::Transaction(tx))?;
                if !stored.is_like(&schema.declared) {
                    return Err(Error::IndexesChanged { tree: schema.name() });
                }
                stored.set_ready(&index.name);
                store_definitions(schema, tx, &stored)
            })?;
        }
        Ok(())
    }

    /// Makes an index right again after writes that bypassed it, such as those of
    /// [`braiddb::Tree`], an import or a salvage. Reads and writes continue meanwhile; writers that
    /// change the records that it reads again and again may wait for 32 of them at a time.
    ///
    /// Fails with [`Error::NotUnique`] if two records have the same value of a unique index, and with
    /// [`Error::Value`] at a record that this program cannot decode; its entries stay.
    pub fn rebuild_index(&self, index: &str) -> Result<()> {
        self.repair(self.schema.index(index)?)
    }

    fn repair(&self, index: &Index<V>) -> Result<()> {
        let schema = &self.schema;
        self.each_chunk(index.bounds::<()>(&(..))?, &mut |tx, (entry, stored)| match problem_of_entry(
            schema,
            &Source::Transaction(tx),
            index,
            &entry,
            &stored,
        )? {
            None | Some(IndexProblemKind::Expiry) => Ok(()),
            Some(IndexProblemKind::Unreadable) if index.split(&entry, &stored).is_some() => {
                Err(unreadable_record(schema, &Source::Transaction(tx), index, &entry, &stored))
            }
            Some(_) => Ok(tx.delete(&schema.tree, &entry)?),
        })?;
        self.each_chunk(key::bounds::<K>(&(..))?, &mut |tx, (key, value)| {
            let value = schema.decode_value(&key, &value)?;
            let source = Source::Transaction(tx);
            let mut entries = Entries::new();
            index.add_entries(&key, &value, &mut entries)?;
            let Some((_, expires)) = source.get_with_expiry(&schema.tree, &key)? else { return Ok(()) };
            for (entry, owner) in entries {
                match source.get_with_expiry(&schema.tree, &entry)? {
                    Some((other, _)) if other != owner => return Err(schema.not_unique(&entry, &other)),
                    Some((_, found)) if is_same(found, expires) => {}
                    _ => _ = tx.put_expiring_with(&schema.tree, &entry, &owner, &key)?,
                }
            }
            Ok(())
        })
    }

    /// Runs `work` for each pair that is there at the begin, in chunks of one transaction. Ends
    /// beside all other writers: they keep later pairs right themselves, a chunk that conflicts gets
    /// smaller, and at last makes them wait.
    fn each_chunk(&self, (mut start, end): Bounds, work: &mut Work<'_>) -> Result<()> {
        let schema = &self.schema;
        let now = Source::Latest(&schema.db).fixed();
        let Some((end, _)) = now.range(&schema.tree, (start.clone(), end)).next_back().transpose()? else {
            return Ok(());
        };
        drop(now);
        let (mut len, mut len_max, mut conflicts) = (CHUNK_LEN, CHUNK_LEN, 0);
        loop {
            let is_exclusive = conflicts > CONFLICTS_MAX;
            let tx = if is_exclusive { schema.db.begin_exclusive()? } else { schema.db.begin()? };
            let bounds = (start.clone(), Bound::Included(end.clone()));
            match self.work_on_chunk(tx, bounds, if is_exclusive { EXCLUSIVE_LEN.min(len_max) } else { len }, work) {
                Ok(Some(last)) if last < end => {
                    start = Bound::Excluded(last);
                    len = (2 * len).min(len_max);
                    conflicts = if is_exclusive { CONFLICTS_MAX } else { 0 };
                }
                Ok(_) => return Ok(()),
                Err(Error::Engine(error)) if (error.is_conflict() || error.is_reader_expired()) && !is_exclusive => {
                    conflicts += 1;
                    len = (len / 2).max(1);
                }
                Err(Error::Engine(braiddb::Error::TransactionTooLarge { .. })) if len_max > 1 => {
                    len_max = len.div_ceil(2);
                    len = len_max;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs `work` for up to `len` pairs, and commits. Returns the last one's key.
    fn work_on_chunk(
        &self,
        tx: Transaction,
        bounds: Bounds,
        len: usize,
        work: &mut Work<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let source = Source::Transaction(&tx);
        // Another program may have replaced the index by one of another shape.
        if !self.schema.definitions(&source)?.is_like(&self.schema.declared) {
            return Err(Error::IndexesChanged { tree: self.schema.name() });
        }
        let chunk = take_chunk(source.range(&self.schema.tree, bounds), len)?;
        let last = chunk.last().map(|(key, _)| key.clone());
        for pair in chunk {
            work(&tx, pair)?;
        }
        tx.commit()?;
        Ok(last)
    }

    /// Compares all indexes with the records, at one snapshot, in constant memory.
    pub fn verify_indexes(&self) -> Result<IndexReport> {
        let schema = &self.schema;
        let source = Source::Latest(&schema.db).fixed();
        let mut report = IndexReport::default();
        for pair in source.range(&schema.tree, key::bounds::<K>(&(..))?) {
            let (key, value) = pair?;
            report.records += 1;
            self.verify_record(&source, &key, &value, &mut report)?;
            if report.problems.len() >= IndexReport::PROBLEMS_MAX {
                return Ok(report);
            }
        }
        for index in &schema.indexes {
            for pair in source.range(&schema.tree, index.bounds::<()>(&(..))?) {
                let (entry, stored) = pair?;
                report.entries += 1;
                if let Some(kind) = problem_of_entry(schema, &source, index, &entry, &stored)? {
                    let key = index.split(&entry, &stored).map_or(&entry[..], |(_, key)| key);
                    report.add(&index.name, key, kind);
                }
                if report.problems.len() >= IndexReport::PROBLEMS_MAX {
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }

    fn verify_record(&self, source: &Source<'_>, key: &[u8], value: &[u8], report: &mut IndexReport) -> Result<()> {
        let schema = &self.schema;
        let value = match (schema.decode_key(key), C::decode(value)) {
            (Ok(_), Ok(value)) => value,
            _ => {
                report.add("", key, IndexProblemKind::Unreadable);
                return Ok(());
            }
        };
        for index in &schema.indexes {
            let mut entries = Entries::new();
            index.add_entries(key, &value, &mut entries)?;
            for (entry, owner) in entries {
                match source.get(&schema.tree, &entry)? {
                    None => report.add(&index.name, key, IndexProblemKind::Missing),
                    Some(other) if other != owner => report.add(&index.name, key, IndexProblemKind::Duplicate),
                    Some(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Takes up to `len` pairs, and at least one.
fn take_chunk(pairs: impl Iterator<Item = braiddb::Result<Pair>>, len: usize) -> Result<Vec<Pair>> {
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    for pair in pairs.take(len) {
        let (key, value) = pair?;
        bytes += key.len() + value.len();
        chunk.push((key, value));
        if bytes >= CHUNK_BYTES {
            break;
        }
    }
    Ok(chunk)
}

/// The entry may be right for another program's type: keep it, and say which record to mend.
fn unreadable_record<K: TupleKey, V, C: ValueCodec<V>>(
    schema: &Schema<K, V, C>,
    source: &Source<'_>,
    index: &Index<V>,
    entry: &[u8],
    stored: &[u8],
) -> Error {
    let key = index.split(entry, stored).map_or(entry, |(_, key)| key);
    let decoded = source.get(&schema.tree, key).map(|value| schema.decode_value(key, &value.unwrap_or_default()));
    match decoded {
        Ok(Err(error)) => error,
        Ok(Ok(_)) => Error::IndexesChanged { tree: schema.name() },
        Err(error) => error.into(),
    }
}

/// Compares an entry with its record.
fn problem_of_entry<K: TupleKey, V, C: ValueCodec<V>>(
    schema: &Schema<K, V, C>,
    source: &Source<'_>,
    index: &Index<V>,
    entry: &[u8],
    stored: &[u8],
) -> Result<Option<IndexProblemKind>> {
    let Some((_, key)) = index.split(entry, stored) else { return Ok(Some(IndexProblemKind::Unreadable)) };
    let Some((value, expires)) = source.get_with_expiry(&schema.tree, key)? else {
        return Ok(Some(IndexProblemKind::Stale));
    };
    let Ok(value) = C::decode(&value) else { return Ok(Some(IndexProblemKind::Unreadable)) };
    let mut entries = Entries::new();
    index.add_entries(key, &value, &mut entries)?;
    if entries.get(entry).is_none_or(|owner| owner != stored) {
        return Ok(Some(IndexProblemKind::Stale));
    }
    let found = source.get_with_expiry(&schema.tree, entry)?.and_then(|(_, expires)| expires);
    Ok((!is_same(found, expires)).then_some(IndexProblemKind::Expiry))
}

fn is_same(one: Option<SystemTime>, other: Option<SystemTime>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let distance = one.duration_since(other).unwrap_or_else(|error| error.duration());
            distance.as_micros() <= EXPIRY_TOLERANCE_US
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, take_chunk};

    /// The story: a chunk had 256 values, however large.
    #[test]
    fn chunk_ends_after_its_bytes() {
        let taken = |len: usize, value_len: usize| {
            let mut read = 0;
            let pairs = (0..1000).map(|key: u32| {
                read += 1;
                Ok((key.to_be_bytes().to_vec(), vec![0; value_len]))
            });
            let chunk = take_chunk(pairs, len).unwrap();
            assert_eq!(chunk.len(), read, "values that were read are in the chunk");
            read
        };
        assert_eq!(taken(256, 100), 256);
        assert_eq!(taken(3, 100), 3);
        assert_eq!(taken(256, CHUNK_BYTES / 4), 4);
        assert_eq!(taken(256, 2 * CHUNK_BYTES), 1);
        assert!(take_chunk(std::iter::empty(), 256).unwrap().is_empty());
    }
}
