//! Bulk loads of sorted records.

use super::{
    sorter::{BulkOptions, SORT_MEMORY_MIN, Sorter},
    writer::{LoadRows, LoadSink, LoadWriter, Loaded, check_lens},
};
use crate::{
    base::{Error, Result},
    db::{
        engine::{key::check_key, root::Engine, settings_check::check_range},
        handles::{
            expiry,
            multi::tree::{MultiTree, TERMINATOR, escape},
            tree::Tree,
        },
    },
    platform::SystemTime,
};
use std::{sync::Arc, time::Duration};

const SHOWN_LEN_MAX: usize = 64;

/// A bulk load of sorted records, without log and memtables. The records become visible together at
/// [`BulkLoader::finish`]; dropping the loader discards them.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let numbers = db.tree("numbers")?;
/// let mut loader = numbers.bulk_loader()?;
/// for number in 0..1000u32 {
///     loader.add(number.to_be_bytes(), (number * number).to_le_bytes())?;
/// }
/// assert!(numbers.first()?.is_none());
/// assert_eq!(loader.finish()?.records, 1000);
/// assert_eq!(numbers.get(30u32.to_be_bytes())?.as_deref(), Some(&900u32.to_le_bytes()[..]));
/// # Ok(())
/// # }
/// ```
pub struct BulkLoader {
    sink: Option<LoadSink>,
    engine: Arc<Engine>,
    tree: [u8; 4],
    rows: LoadRows,
    last_key: Vec<u8>,
    records: u64,
}

impl std::fmt::Debug for BulkLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoader").finish_non_exhaustive()
    }
}

impl BulkLoader {
    pub(in crate::db) fn new(tree: &Tree) -> Result<BulkLoader> {
        Ok(BulkLoader {
            sink: Some(LoadSink::new(LoadWriter::new(tree.db().engine(), tree.state())?)?),
            engine: Arc::clone(tree.db().engine()),
            tree: tree.state().id.first_key(),
            rows: LoadRows::default(),
            last_key: Vec::new(),
            records: 0,
        })
    }

    /// Adds a record. If its key is not greater than all earlier keys, `InvalidArgument` names the
    /// record and both keys. Any error ends and discards the load.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_with_end(key.as_ref(), value.as_ref(), None)
    }

    /// Adds a record whose value expires after `ttl` from now: see [`Tree::put_with_ttl`].
    pub fn add_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        let expires_us = expiry::expiry_after(&self.engine, ttl);
        self.add_with_end(key.as_ref(), value.as_ref(), Some(expires_us))
    }

    /// Adds a record whose value expires at `expires`: see [`Tree::put_until`].
    pub fn add_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: SystemTime) -> Result<()> {
        let expires_us = expiry::expiry_at(&self.engine, expires);
        self.add_with_end(key.as_ref(), value.as_ref(), Some(expires_us))
    }

    fn add_with_end(&mut self, key: &[u8], value: &[u8], expires_us: Option<u64>) -> Result<()> {
        let done = check_key(key).and_then(|()| self.add_pieces(&[key], value, expires_us));
        done.inspect_err(|_| self.sink = None)
    }

    fn add_pieces(&mut self, key: &[&[u8]], value: &[u8], expires_us: Option<u64>) -> Result<()> {
        if self.sink.is_none() {
            return Err(over());
        }
        let key_len = key.iter().map(|piece| piece.len()).sum::<usize>() + self.tree.len();
        check_lens(key_len, value.len())?;
        if self.rows.is_full() {
            self.hand_on()?;
        }
        let last = if self.rows.is_empty() { &self.last_key } else { self.rows.last_key() };
        let is_after = last.get(self.tree.len()..).is_none_or(|last| is_less(last, key));
        if !is_after {
            return Err(self.disorder(key));
        }
        match (key, expires_us) {
            ([whole], None) => self.rows.push(&[&self.tree, whole], value),
            ([whole], Some(expires_us)) => self.rows.push_until(&[&self.tree, whole], value, expires_us),
            (pieces, _) => self.rows.push(&[&[&self.tree[..]], pieces].concat(), value),
        }
        self.records += 1;
        Ok(())
    }

    #[cold]
    fn disorder(&self, key: &[&[u8]]) -> Error {
        let last = if self.rows.is_empty() { &self.last_key } else { self.rows.last_key() };
        disorder(self.records + 1, &key.concat(), last.get(self.tree.len()..).unwrap_or_default())
    }

    fn hand_on(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.last_key.clear();
        self.last_key.extend_from_slice(rows.last_key());
        self.sink.as_mut().ok_or_else(over)?.write(rows)
    }

    /// Returns the number of added records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Makes all records visible by one commit. On return it and all earlier commits are durable.
    ///
    /// Replaces everything committed to the load's keys before. Older snapshots do not see it;
    /// transactions that read keys of its range conflict with it. Memtables with such keys are
    /// flushed first.
    pub fn finish(mut self) -> Result<Loaded> {
        if !self.rows.is_empty() {
            self.hand_on()?;
        }
        self.sink.take().ok_or_else(over)?.finish()?.install()
    }
}

/// A bulk load of records in any order: see [`Tree::bulk_load_unsorted`]. The records become
/// visible together at [`UnsortedLoader::finish`]; dropping the loader discards them.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let squares = db.tree("squares")?;
/// let mut loader = squares.unsorted_loader(braiddb::bulk::BulkOptions::default())?;
/// for number in [3u8, 1, 2] {
///     loader.add([number], [number * number])?;
/// }
/// assert!(squares.first()?.is_none());
/// assert_eq!(loader.finish()?.records, 3);
/// assert_eq!(squares.get([3])?.as_deref(), Some(&[9][..]));
/// # Ok(())
/// # }
/// ```
pub struct UnsortedLoader<'a> {
    tree: Tree,
    sorter: Sorter<'a>,
    has_failed: bool,
}

impl std::fmt::Debug for UnsortedLoader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnsortedLoader").finish_non_exhaustive()
    }
}

impl UnsortedLoader<'_> {
    /// Adds a record. A key or value beyond the limits returns `InvalidArgument` and is skipped. A
    /// write error ends and discards the load.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_lens(key.len(), value.len())?;
        if self.has_failed {
            return Err(over());
        }
        self.sorter.add(key, value).inspect_err(|_| self.has_failed = true)
    }

    /// Completes the load, like [`BulkLoader::finish`]. The last record of a key wins.
    pub fn finish(self) -> Result<Loaded> {
        if self.has_failed {
            return Err(over());
        }
        let mut sink = LoadSink::new(LoadWriter::new(self.tree.db().engine(), self.tree.state())?)?;
        self.sorter.finish(|rows| sink.write(rows))?;
        sink.finish()?.install()
    }
}

#[cold]
pub(in crate::db) fn disorder(record: u64, key: &[u8], last: &[u8]) -> Error {
    let what = if last == key { "comes twice" } else { "comes after a greater one" };
    Error::InvalidArgument(format!(
        "record {record}: the key b\"{}\" {what}, b\"{}\"; records that are not sorted can be loaded with bulk_load_unsorted; nothing of \
         these is kept",
        shown(key),
        shown(last)
    ))
}

fn over() -> Error {
    Error::InvalidArgument("the load has failed before, and nothing of it is left: begin another".to_owned())
}

fn is_less(key: &[u8], pieces: &[&[u8]]) -> bool {
    let mut rest = key;
    for piece in pieces {
        let (here, after) = rest.split_at(rest.len().min(piece.len()));
        match here.cmp(piece) {
            std::cmp::Ordering::Equal => rest = after,
            order => return order.is_lt(),
        }
    }
    false
}

fn shown(key: &[u8]) -> String {
    let more = if key.len() > SHOWN_LEN_MAX { "..." } else { "" };
    format!("{}{more}", key[..key.len().min(SHOWN_LEN_MAX)].escape_ascii())
}

/// A [`BulkLoader`] of pairs for a multi-tree.
pub struct MultiBulkLoader(BulkLoader);

impl std::fmt::Debug for MultiBulkLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiBulkLoader").finish_non_exhaustive()
    }
}

impl MultiBulkLoader {
    /// Adds a pair. Pairs must strictly ascend by key and value. Errors are those of
    /// [`BulkLoader::add`].
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let checked = check_key(key).and_then(|()| check_key(value));
        let done = checked.and_then(|()| self.0.add_pieces(&[&escape(key), &TERMINATOR, value], b"", None));
        done.inspect_err(|_| self.0.sink = None)
    }

    /// Completes the load, like [`BulkLoader::finish`].
    pub fn finish(self) -> Result<Loaded> {
        self.0.finish()
    }
}

impl Tree {
    /// Begins a bulk load of sorted records.
    pub fn bulk_loader(&self) -> Result<BulkLoader> {
        BulkLoader::new(self)
    }

    /// Loads records in strictly ascending key order directly into files, without log and in little
    /// memory. All become visible by one durable commit, or none.
    ///
    /// Data after the first 64 MiB bypass the page cache: a load evicts nothing, but first reads go
    /// to the device. The tree may have other records and concurrent writes: see
    /// [`BulkLoader::finish`]. With a [`crate::TreeOptions::ttl`] values expire, counted from the
    /// beginning of the load. A record out of order returns `InvalidArgument`.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let capitals = db.tree("capitals")?;
    /// let loaded = capitals.bulk_load([("France", "Paris"), ("Peru", "Lima"), ("Togo", "Lomé")])?;
    /// assert_eq!(loaded.records, 3);
    /// assert!(capitals.bulk_load([("Mali", "Bamako"), ("Cuba", "Havana")]).is_err());
    /// assert_eq!(capitals.iter().count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Loaded> {
        let mut loader = self.bulk_loader()?;
        for (key, value) in records {
            loader.add(key, value)?;
        }
        loader.finish()
    }
}

impl Tree {
    /// Loads records in any order, like [`Tree::bulk_load`]. The **last** record of a key wins.
    ///
    /// Sorts in memory ([`BulkOptions::memory`]). Larger loads spill to compressed temporary files
    /// in the database's directory, about as large as the records. So each record is written twice,
    /// and once more for every few hundred such files.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let capitals = db.tree("capitals")?;
    /// let records = [("Togo", "?"), ("Peru", "Lima"), ("France", "Paris"), ("Togo", "Lomé")];
    /// let loaded = capitals.bulk_load_unsorted(records, braiddb::bulk::BulkOptions::default())?;
    /// assert_eq!(loaded.records, 3);
    /// assert_eq!(capitals.get("Togo")?.as_deref(), Some("Lomé".as_bytes()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bulk_load_unsorted<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        options: BulkOptions<'_>,
    ) -> Result<Loaded> {
        let mut loader = self.unsorted_loader(options)?;
        for (key, value) in records {
            loader.add(key, value)?;
        }
        loader.finish()
    }

    /// Begins a bulk load of records in any order. With a [`crate::TreeOptions::ttl`] all values
    /// expire.
    pub fn unsorted_loader<'a>(&self, options: BulkOptions<'a>) -> Result<UnsortedLoader<'a>> {
        let engine = self.db().engine();
        if let Some(memory) = options.memory {
            check_range("memory", memory, SORT_MEMORY_MIN, usize::MAX)?;
        }
        drop(LoadWriter::new(engine, self.state())?);
        let compression = self.state().options.get().compression.unwrap_or(engine.settings.compression);
        let sorter = Sorter::new(engine, self.state().id, compression, options);
        Ok(UnsortedLoader { tree: self.clone(), sorter, has_failed: false })
    }
}

impl MultiTree {
    /// Begins a bulk load of sorted pairs.
    pub fn bulk_loader(&self) -> Result<MultiBulkLoader> {
        Ok(MultiBulkLoader(BulkLoader {
            sink: Some(LoadSink::new(LoadWriter::new(self.db().engine(), self.state())?)?),
            engine: Arc::clone(self.db().engine()),
            tree: self.state().id.first_key(),
            rows: LoadRows::default(),
            last_key: Vec::new(),
            records: 0,
        }))
    }

    /// Loads pairs in strictly ascending order of key and value, like [`Tree::bulk_load`].
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<Loaded> {
        let mut loader = self.bulk_loader()?;
        for (key, value) in pairs {
            loader.add(key, value)?;
        }
        loader.finish()
    }
}
