//! Bulk loads of records that come in order.

use super::{
    sorter::{BulkOptions, SORT_MEMORY_MIN, Sorter},
    writer::{LoadRows, LoadSink, LoadWriter, Loaded, check_lens},
};
use crate::{
    base::{Error, Result},
    db::{
        engine::{key::check_key, root::Engine, settings_check::check_range},
        handles::{
            multi::tree::{MultiTree, TERMINATOR, escape},
            tree::Tree,
        },
    },
    platform::SystemTime,
};
use std::{sync::Arc, time::Duration};

/// The most of a key that an error shows.
const SHOWN_LEN_MAX: usize = 64;

/// A load in the making: records that come in order, for which nothing is logged or kept in memory. They are not there before
/// [`BulkLoader::finish`], and all of them are after it. Dropped without that, it leaves nothing behind.
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
    /// The last key of the rows that were handed on.
    last_key: Vec<u8>,
    records: u64,
}

impl std::fmt::Debug for BulkLoader {
    /// Without what is inside: see [`Db`](crate::Db).
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

    /// Adds a record, whose key comes after all keys that were added before. Else `InvalidArgument` names the record and both keys. After an error
    /// the load is over, and nothing of it is left.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.add_with_end(key.as_ref(), value.as_ref(), None)
    }

    /// Adds a record as [`BulkLoader::add`] does, whose value expires when `ttl` has passed from now on: see
    /// [`Tree::put_with_ttl`].
    pub fn add_with_ttl(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, ttl: Duration) -> Result<()> {
        let expires_us = self.engine.expiry_after(ttl);
        self.add_with_end(key.as_ref(), value.as_ref(), Some(expires_us))
    }

    /// Adds a record as [`BulkLoader::add`] does, with the moment when its value expires: see [`Tree::put_until`].
    pub fn add_until(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, expires: SystemTime) -> Result<()> {
        let expires_us = self.engine.expiry_at(expires);
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

    /// How many records were added.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Has all records be there from now on, by one commit. They survive a power failure when this returns, and so do all commits before.
    ///
    /// What was committed to the same keys before is superseded, whenever the load was begun; it is not seen by snapshots that were taken before, and
    /// transactions that have read of its range fail to commit as for any other commit. What is in memory of the range is flushed first.
    pub fn finish(mut self) -> Result<Loaded> {
        if !self.rows.is_empty() {
            self.hand_on()?;
        }
        self.sink.take().ok_or_else(over)?.finish()?.install()
    }
}

/// A load in the making, of records in any order: see [`Tree::bulk_load_unsorted`]. They are not there before [`UnsortedLoader::finish`], and all
/// of them are after it. Dropped without that, it leaves nothing behind.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// let db = braiddb::Db::in_memory()?;
/// let squares = db.tree("squares")?;
/// let mut loader = squares.unsorted_loader(braiddb::BulkOptions::default())?;
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
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnsortedLoader").finish_non_exhaustive()
    }
}

impl UnsortedLoader<'_> {
    /// Adds a record. After an error in writing, nothing more can be added, and nothing will be loaded. A key or value beyond the limits is
    /// `InvalidArgument`, and is left out.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_key(key)?;
        check_lens(key.len(), value.len())?;
        if self.has_failed {
            return Err(over());
        }
        self.sorter.add(key, value).inspect_err(|_| self.has_failed = true)
    }

    /// Has all records be there from now on, by one commit, as [`BulkLoader::finish`] does; of several records of one key the last.
    pub fn finish(self) -> Result<Loaded> {
        if self.has_failed {
            return Err(over());
        }
        let mut sink = LoadSink::new(LoadWriter::new(self.tree.db().engine(), self.tree.state())?)?;
        self.sorter.finish(|rows| sink.write(rows))?;
        sink.finish()?.install()
    }
}

/// The error about a record whose key does not come after the last.
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

/// Whether a key is less than another that comes in pieces.
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

/// As [`BulkLoader`], of pairs for a tree that keeps many values to a key.
pub struct MultiBulkLoader(BulkLoader);

impl std::fmt::Debug for MultiBulkLoader {
    /// Without what is inside: see [`Db`](crate::Db).
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MultiBulkLoader").finish_non_exhaustive()
    }
}

impl MultiBulkLoader {
    /// Adds a pair. Pairs come by key, those of one key by value, each once; else as [`BulkLoader::add`].
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let checked = check_key(key).and_then(|()| check_key(value));
        let done = checked.and_then(|()| self.0.add_pieces(&[&escape(key), &TERMINATOR, value], b"", None));
        done.inspect_err(|_| self.0.sink = None)
    }

    /// As [`BulkLoader::finish`].
    pub fn finish(self) -> Result<Loaded> {
        self.0.finish()
    }
}

impl Tree {
    /// Begins a load of records that come in order.
    pub fn bulk_loader(&self) -> Result<BulkLoader> {
        BulkLoader::new(self)
    }

    /// Loads records that come by ascending key, each key once, straight into files: at the speed of the device, without a log, in little memory.
    /// Either all of them are there afterwards, by one durable commit, or none is.
    ///
    /// What comes after the first 64 MiB is written past the system's cache, so that a load drives nothing out of it: the first read of each block of
    /// that goes to the device.
    ///
    /// The tree may hold something already, and be written to meanwhile: see [`BulkLoader::finish`]. Values expire as those of puts would, in a tree
    /// with a [`crate::TreeOptions::ttl`], counted from the load's beginning. A record out of order is `InvalidArgument`, and names the record.
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
    /// As [`Tree::bulk_load`], of records in any order; of several records of one key the **last** counts.
    ///
    /// They are sorted in memory ([`BulkOptions::memory`]) as far as that goes, and beyond that in files, of the database's directory, which take about as much space as the records
    /// do, packed, until the load is done. So each record is written twice, or once more for each time that there are more than a few hundred such files.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let capitals = db.tree("capitals")?;
    /// let records = [("Togo", "?"), ("Peru", "Lima"), ("France", "Paris"), ("Togo", "Lomé")];
    /// let loaded = capitals.bulk_load_unsorted(records, braiddb::BulkOptions::default())?;
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

    /// Begins a load of records in any order. They have no ends of their own: with a [`crate::TreeOptions::ttl`] all of them expire.
    pub fn unsorted_loader<'a>(&self, options: BulkOptions<'a>) -> Result<UnsortedLoader<'a>> {
        let engine = self.db().engine();
        if let Some(memory) = options.memory {
            check_range("memory", memory, SORT_MEMORY_MIN, usize::MAX)?;
        }
        // What cannot be loaded is told before it is sorted.
        drop(LoadWriter::new(engine, self.state())?);
        let compression = self.state().options.get().compression.unwrap_or(engine.settings.compression);
        let sorter = Sorter::new(engine, self.state().id, compression, options);
        Ok(UnsortedLoader { tree: self.clone(), sorter, has_failed: false })
    }
}

impl MultiTree {
    /// Begins a load of pairs that come in order.
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

    /// As [`Tree::bulk_load`], of pairs that come by key and then by value, each once.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<Loaded> {
        let mut loader = self.bulk_loader()?;
        for (key, value) in pairs {
            loader.add(key, value)?;
        }
        loader.finish()
    }
}
