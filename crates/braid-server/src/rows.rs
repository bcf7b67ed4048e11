//! The rows of a scan: records, or the pairs of a tree with many values per key.
//!
//! The **place** of a record is its key. That of a pair is the length of its key (u32, big endian),
//! the key, and the value.

use crate::{opened::Opened, snapshots::Scan};
use braiddb::{Cursor, Error, Result, views::MultiCursor};

/// A position in a tree.
pub enum Rows {
    Single(Cursor),
    Multi(MultiCursor),
}

impl Rows {
    pub fn of(scan: &Scan) -> Rows {
        match &scan.tree {
            Opened::Single(tree) => Rows::Single(scan.snapshot.cursor(tree)),
            Opened::Multi(tree) => Rows::Multi(scan.snapshot.multi_tree(tree).cursor()),
        }
    }

    /// Moves to the first row of a scan, which may be beyond its other end.
    pub fn begin(&mut self, scan: &Scan) -> Result<bool> {
        match (self, scan.is_reverse, &scan.end) {
            (Rows::Single(cursor), false, _) => cursor.seek(&scan.start),
            (Rows::Single(cursor), true, Some(end)) => cursor.seek_before(end),
            (Rows::Single(cursor), true, None) => cursor.seek_last(),
            (Rows::Multi(cursor), false, _) => cursor.seek(&scan.start),
            (Rows::Multi(cursor), true, Some(end)) => cursor.seek_before(end),
            (Rows::Multi(cursor), true, None) => cursor.seek_last(),
        }
    }

    /// Moves to a row by its place.
    pub fn resume(&mut self, mut place: Vec<u8>, is_reverse: bool) -> Result<bool> {
        match self {
            Rows::Single(cursor) if is_reverse => {
                place.push(0);
                cursor.seek_before(place)
            }
            Rows::Single(cursor) => cursor.seek(place),
            Rows::Multi(cursor) => {
                let wrong = || Error::InvalidArgument("next is not the token of a scan of this tree".to_owned());
                let (len, pair) = place.split_first_chunk().ok_or_else(wrong)?;
                let (key, value) = pair.split_at_checked(u32::from_be_bytes(*len) as usize).ok_or_else(wrong)?;
                Ok(match is_reverse {
                    true => cursor.seek_value_before(key, [value, &[0]].concat())? || cursor.prev()?,
                    false => cursor.seek_value(key, value)? || cursor.next()?,
                })
            }
        }
    }

    /// Returns the place of the present row.
    pub fn place(&self) -> Vec<u8> {
        match self {
            Rows::Single(cursor) => cursor.key().to_vec(),
            Rows::Multi(cursor) => {
                let (key, value) = cursor.pair();
                [&(key.len() as u32).to_be_bytes(), key, value].concat()
            }
        }
    }

    pub fn is_on_row(&self) -> bool {
        match self {
            Rows::Single(cursor) => cursor.is_on_row(),
            Rows::Multi(cursor) => cursor.is_on_pair(),
        }
    }

    pub fn key(&self) -> &[u8] {
        match self {
            Rows::Single(cursor) => cursor.key(),
            Rows::Multi(cursor) => cursor.key(),
        }
    }

    /// Returns the length of the value without reading it.
    pub fn value_len(&self) -> Result<u64> {
        match self {
            Rows::Single(cursor) => cursor.value_len(),
            Rows::Multi(cursor) => Ok(cursor.value().len() as u64),
        }
    }

    pub fn value(&self) -> Result<&[u8]> {
        match self {
            Rows::Single(cursor) => cursor.value(),
            Rows::Multi(cursor) => Ok(cursor.value()),
        }
    }

    /// Moves to the next row of a scan. A scan without values shows each key once.
    pub fn advance(&mut self, scan: &Scan) -> Result<bool> {
        match (self, scan.is_reverse, scan.has_values) {
            (Rows::Single(cursor), false, _) => cursor.next(),
            (Rows::Single(cursor), true, _) => cursor.prev(),
            (Rows::Multi(cursor), false, true) => cursor.next(),
            (Rows::Multi(cursor), true, true) => cursor.prev(),
            (Rows::Multi(cursor), false, false) => cursor.next_key(),
            (Rows::Multi(cursor), true, false) => cursor.prev_key(),
        }
    }
}
