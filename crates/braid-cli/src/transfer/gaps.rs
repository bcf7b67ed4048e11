//! Finds the readable part of a tree behind damage, which no cursor can pass.
//!
//! Keys of the tree's file directories split the remaining range. From the first readable one among
//! ever closer split keys, a cursor moves backwards until it meets the damage.

use anyhow::Result;
use braiddb::{Cursor, Snapshot, Tree};

use crate::notation::{KeyNotation, show_key};

const PARTS: usize = 256;

const ROUNDS_MAX: usize = 16;

pub struct Gap {
    /// The last key before the gap; `None` at the start of the tree.
    pub after: Option<Vec<u8>>,
    /// A cursor on the first record after the gap; `None` if the gap reaches the end of the tree.
    pub resume: Option<Cursor>,
}

impl Gap {
    pub fn in_words(&self, keys: KeyNotation) -> String {
        let from = match &self.after {
            Some(key) => format!("after {}", show_key(key, keys)),
            None => "from the first".to_owned(),
        };
        let to = match &self.resume {
            Some(cursor) => format!("before {}", show_key(cursor.key(), keys)),
            None => "to the last".to_owned(),
        };
        format!("records {from}, {to}")
    }
}

pub fn gap_after(snapshot: &Snapshot, tree: &Tree, after: Option<&[u8]>) -> Result<Gap> {
    let start = after.map_or(Vec::new(), |key| [key, &[0]].concat());
    let mut resume = readable_point(snapshot, tree, &start)?;
    if resume.is_none() {
        let mut last = snapshot.cursor(tree);
        resume = matches!(last.seek_last(), Ok(true)).then_some(last).filter(|last| last.key() >= start.as_slice());
    }
    let resume = resume.and_then(|cursor| go_back(snapshot, tree, cursor, &start));
    Ok(Gap { after: after.map(<[u8]>::to_vec), resume })
}

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

/// Returns a cursor on the first record behind the damage.
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
