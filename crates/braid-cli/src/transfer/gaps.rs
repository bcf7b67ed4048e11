//! What of a tree can be read behind damage.
//!
//! A cursor that meets a damaged block fails and can go no further. Keys that split the rest of the tree come from the
//! directories of its files, and some of them lie behind the damage: the first of them that can be read is looked for, among
//! keys that are closer and closer, and from there a cursor goes back until it meets the damage from behind.

use anyhow::Result;
use braiddb::{Cursor, Snapshot, Tree};

use crate::notation::{KeyNotation, show_key};

/// Parts into which the rest of a tree is split at a time.
const PARTS: usize = 256;

/// How often the range up to the first key that can be read is split again.
const ROUNDS_MAX: usize = 16;

/// A range that could not be read.
pub struct Gap {
    /// The last key before it; the gap begins with the tree if there is none.
    pub after: Option<Vec<u8>>,
    /// Stands on the first record behind it; the gap ends with the tree if there is none.
    pub resume: Option<Cursor>,
}

impl Gap {
    /// For people.
    pub fn in_words(&self, keys: KeyNotation) -> String {
        let from = match &self.after {
            Some(key) => format!("after {}", show_key(key, keys)),
            None => "from the first on".to_owned(),
        };
        let to = match &self.resume {
            Some(cursor) => format!("before {}", show_key(cursor.key(), keys)),
            None => "to the last".to_owned(),
        };
        format!("records {from}, {to}")
    }
}

/// The gap behind the record `after`, or at the beginning of the tree.
pub fn gap_after(snapshot: &Snapshot, tree: &Tree, after: Option<&[u8]>) -> Result<Gap> {
    let start = after.map_or(Vec::new(), |key| [key, &[0]].concat());
    let mut resume = readable_point(snapshot, tree, &start)?;
    if resume.is_none() {
        // Nothing that splits it can be read: perhaps its end can.
        let mut last = snapshot.cursor(tree);
        resume = matches!(last.seek_last(), Ok(true)).then_some(last).filter(|last| last.key() >= start.as_slice());
    }
    let resume = resume.and_then(|cursor| go_back(snapshot, tree, cursor, &start));
    Ok(Gap { after: after.map(<[u8]>::to_vec), resume })
}

/// A cursor on the first of all splitting keys that can be read.
fn readable_point(snapshot: &Snapshot, tree: &Tree, start: &[u8]) -> Result<Option<Cursor>> {
    let mut found: Option<(Vec<u8>, Cursor)> = None;
    for _ in 0..ROUNDS_MAX {
        let points = match &found {
            Some((end, _)) => tree.split_points(start..end.as_slice(), PARTS)?,
            None => tree.split_points(start.., PARTS)?,
        };
        let is_closer = |point: &Vec<u8>| found.as_ref().is_none_or(|(end, _)| point < end);
        let closer =
            points.into_iter().filter(|point| point.as_slice() > start && is_closer(point)).find_map(|point| {
                let mut cursor = snapshot.cursor(tree);
                matches!(cursor.seek(&point), Ok(true)).then_some((point, cursor))
            });
        match closer {
            Some(closer) => found = Some(closer),
            None => break,
        }
    }
    Ok(found.map(|(_, cursor)| cursor))
}

/// Goes back from a record that can be read to the first one behind the damage; a new cursor on that.
fn go_back(snapshot: &Snapshot, tree: &Tree, mut cursor: Cursor, start: &[u8]) -> Option<Cursor> {
    let mut first = cursor.key().to_vec();
    while let Ok(true) = cursor.prev() {
        if cursor.key() < start {
            break;
        }
        first = cursor.key().to_vec();
    }
    let mut cursor = snapshot.cursor(tree);
    matches!(cursor.seek(&first), Ok(true)).then_some(cursor)
}
