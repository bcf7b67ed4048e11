//! What the workloads act on: the engine; or nothing, to learn what the benchmark itself costs.

use std::hint::black_box;

use anyhow::Result;
use braiddb::{Batch, Db, Durability, Iter, Tree};

/// A part of the key space, by the bytes of keys.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The first key, if not that of all.
    pub from: Option<Vec<u8>>,
    /// The first key past the end, if there is an end.
    pub to: Option<Vec<u8>>,
}

/// One thread's hold on a store. Writes are gathered until they are committed; one scan is open at a time.
pub trait Store {
    /// Adds to the next commit that `key` has this value.
    fn put(&mut self, key: &[u8], value: &[u8]);
    /// Adds to the next commit that `key` is gone.
    fn delete(&mut self, key: &[u8]);
    /// Commits what was gathered.
    fn commit(&mut self) -> Result<()>;
    /// Shows the value of `key`, if it has one.
    fn get(&mut self, key: &[u8], see: impl FnMut(&[u8])) -> Result<()>;
    /// Shows the values of those keys that have one, with their places among the keys.
    fn multi_get(&mut self, keys: &[Vec<u8>], see: impl FnMut(usize, &[u8])) -> Result<()>;
    /// Begins a scan from `key` on, forward and without end.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Begins a scan of the keys that begin with `prefix`, forward.
    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()>;
    /// Begins a scan of a part, from its start or from its end.
    fn seek_part(&mut self, part: &Bounds, reverse: bool) -> Result<()>;
    /// Shows the next row of the scan; whether there was one.
    fn next(&mut self, see: impl FnMut(&[u8], &[u8])) -> Result<bool>;
}

/// A tree of a database.
pub struct TreeStore {
    db: Db,
    tree: Tree,
    durability: Durability,
    batch: Batch,
    scan: Option<Iter>,
    reverse: bool,
}

impl TreeStore {
    /// A tree, to which is committed with this durability.
    pub fn new(db: &Db, tree: &Tree, durability: Durability) -> TreeStore {
        TreeStore { db: db.clone(), tree: tree.clone(), durability, batch: db.batch(), scan: None, reverse: false }
    }
}

impl Store for TreeStore {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(&self.tree, key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.batch.delete(&self.tree, key);
    }

    fn commit(&mut self) -> Result<()> {
        self.db.write(std::mem::take(&mut self.batch), self.durability)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<()> {
        if let Some(value) = self.tree.get(key)? {
            see(&value);
        }
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], mut see: impl FnMut(usize, &[u8])) -> Result<()> {
        for (place, value) in self.tree.multi_get(keys)?.iter().enumerate() {
            if let Some(value) = value {
                see(place, value);
            }
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.reverse = false;
        self.scan = Some(self.tree.range(key..));
        Ok(())
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.reverse = false;
        self.scan = Some(self.tree.prefix(prefix));
        Ok(())
    }

    fn seek_part(&mut self, part: &Bounds, reverse: bool) -> Result<()> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        self.reverse = reverse;
        let from = part.from.as_deref().map_or(Unbounded, Included);
        let to = part.to.as_deref().map_or(Unbounded, Excluded);
        self.scan = Some(self.tree.range::<&[u8]>((from, to)));
        Ok(())
    }

    fn next(&mut self, mut see: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        let Some(scan) = &mut self.scan else { return Ok(false) };
        let row = if self.reverse { scan.next_back() } else { scan.next() };
        match row.transpose()? {
            Some((key, value)) => {
                see(&key, &value);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// Rows that a scan of [`Nothing`] by prefix shows.
const NOTHING_ROWS: u64 = 256;

/// Has a value for each key, and keeps nothing.
#[derive(Debug)]
pub struct Nothing {
    key: Vec<u8>,
    value: Vec<u8>,
    rows_left: u64,
}

impl Nothing {
    /// That shows this key and this value to whoever reads.
    pub fn new(key: Vec<u8>, value: Vec<u8>) -> Nothing {
        Nothing { key, value, rows_left: 0 }
    }
}

impl Store for Nothing {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        black_box((key, value));
    }

    fn delete(&mut self, key: &[u8]) {
        black_box(key);
    }

    fn commit(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], mut see: impl FnMut(&[u8])) -> Result<()> {
        black_box(key);
        see(black_box(&self.value));
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], mut see: impl FnMut(usize, &[u8])) -> Result<()> {
        for place in 0..black_box(keys).len() {
            see(place, black_box(&self.value));
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        black_box(key);
        self.rows_left = u64::MAX;
        Ok(())
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        black_box(prefix);
        self.rows_left = NOTHING_ROWS;
        Ok(())
    }

    fn seek_part(&mut self, part: &Bounds, _reverse: bool) -> Result<()> {
        black_box(part);
        self.rows_left = u64::MAX;
        Ok(())
    }

    fn next(&mut self, mut see: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        if self.rows_left == 0 {
            return Ok(false);
        }
        self.rows_left -= 1;
        see(black_box(&self.key), black_box(&self.value));
        Ok(true)
    }
}
