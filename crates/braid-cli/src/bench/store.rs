//! The target of the workloads: the engine, or a store that does nothing.

use std::hint::black_box;

use anyhow::Result;
use braiddb::{Batch, Cursor, Db, Durability, Tree};

#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// `None`: from the start.
    pub from: Option<Vec<u8>>,
    /// Exclusive; `None`: to the end.
    pub to: Option<Vec<u8>>,
}

/// A thread's access to a store. Writes are gathered until `commit`; one scan is open at a time.
pub trait Store {
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn delete(&mut self, key: &[u8]);
    fn commit(&mut self) -> Result<()>;
    fn get(&mut self, key: &[u8], see: impl FnMut(&[u8])) -> Result<()>;
    fn multi_get(&mut self, keys: &[Vec<u8>], see: impl FnMut(usize, &[u8])) -> Result<()>;
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()>;
    fn seek_part(&mut self, part: &Bounds, reverse: bool) -> Result<()>;
    /// Calls `see` with the next row of the scan. Returns false at the end.
    fn next(&mut self, see: impl FnMut(&[u8], &[u8])) -> Result<bool>;
}

pub struct TreeStore {
    db: Db,
    tree: Tree,
    durability: Durability,
    batch: Batch,
    /// Created by the first scan and refreshed by each.
    cursor: Option<Cursor>,
    reverse: bool,
    /// Whether the seek found a first row; `None` once that row was returned.
    first: Option<bool>,
    limit: Limit,
}

enum Limit {
    None,
    Prefix(Vec<u8>),
    Before(Vec<u8>),
    From(Vec<u8>),
}

impl Limit {
    fn allows(&self, key: &[u8]) -> bool {
        match self {
            Limit::None => true,
            Limit::Prefix(prefix) => key.starts_with(prefix),
            Limit::Before(end) => key < end.as_slice(),
            Limit::From(start) => key >= start.as_slice(),
        }
    }
}

impl TreeStore {
    pub fn new(db: &Db, tree: &Tree, durability: Durability) -> TreeStore {
        TreeStore {
            db: db.clone(),
            tree: tree.clone(),
            durability,
            batch: db.batch(),
            cursor: None,
            reverse: false,
            first: None,
            limit: Limit::None,
        }
    }

    fn begin_scan(
        &mut self,
        reverse: bool,
        limit: Limit,
        seek: impl FnOnce(&mut Cursor) -> braiddb::Result<bool>,
    ) -> Result<()> {
        let cursor = self.cursor.get_or_insert_with(|| self.tree.cursor());
        cursor.refresh();
        (self.reverse, self.limit) = (reverse, limit);
        self.first = Some(seek(cursor)?);
        Ok(())
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
        std::mem::replace(&mut self.batch, self.db.batch()).commit_with(self.durability)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], see: impl FnMut(&[u8])) -> Result<()> {
        self.tree.get_with(key, see)?;
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], mut see: impl FnMut(usize, &[u8])) -> Result<()> {
        self.tree.multi_get_with(keys, |place, value| value.into_iter().for_each(|value| see(place, value)))?;
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin_scan(false, Limit::None, |cursor| cursor.seek(key))
    }

    fn seek_prefix(&mut self, prefix: &[u8]) -> Result<()> {
        self.begin_scan(false, Limit::Prefix(prefix.to_vec()), |cursor| cursor.seek(prefix))
    }

    fn seek_part(&mut self, part: &Bounds, reverse: bool) -> Result<()> {
        if reverse {
            let limit = part.from.clone().map_or(Limit::None, Limit::From);
            return self.begin_scan(true, limit, |cursor| match &part.to {
                Some(end) => cursor.seek_before(end),
                None => cursor.seek_last(),
            });
        }
        let limit = part.to.clone().map_or(Limit::None, Limit::Before);
        self.begin_scan(false, limit, |cursor| match &part.from {
            Some(start) => cursor.seek(start),
            None => cursor.seek_first(),
        })
    }

    fn next(&mut self, mut see: impl FnMut(&[u8], &[u8])) -> Result<bool> {
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        let is_on_row = match self.first.take() {
            Some(is_on_row) => is_on_row,
            None if self.reverse => cursor.prev()?,
            None => cursor.next()?,
        };
        if !is_on_row || !self.limit.allows(cursor.key()) {
            return Ok(false);
        }
        let (key, value) = cursor.row()?;
        see(key, value);
        Ok(true)
    }
}

const NOTHING_ROWS: u64 = 256;

#[derive(Debug)]
pub struct Nothing {
    key: Vec<u8>,
    value: Vec<u8>,
    rows_left: u64,
}

impl Nothing {
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
