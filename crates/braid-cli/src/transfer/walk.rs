//! The records of a tree one after the other, past those that cannot be read.
//!
//! A record that a merge function fails on is left out, and named. A range that is damaged ends the walk, unless it is to
//! keep going: then it is left out, and named, too.

use std::time::SystemTime;

use anyhow::Result;
use braiddb::{Error, MultiTree, Snapshot, Tree};

use super::gaps::{Gap, gap_after};
use crate::notation::{KeyNotation, show_key, show_name};

/// Takes a record: key, value, and when it expires.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8], Option<SystemTime>) -> Result<()> + 'a;

/// A walk over trees as they were at one moment.
pub struct Walk {
    /// The moment.
    pub snapshot: Snapshot,
    /// Whether damage is passed by.
    pub keep_going: bool,
    /// What could not be read, in words.
    pub left_out: Vec<String>,
}

/// The tree that is walked, for people.
#[derive(Clone, Copy)]
pub struct Walked<'a> {
    /// Its name.
    pub name: &'a str,
    /// How its keys are written.
    pub keys: KeyNotation,
}

impl Walk {
    /// Shows `visit` each record of a tree.
    pub fn records(&mut self, tree: &Tree, walked: Walked<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        let mut cursor = self.snapshot.cursor(tree);
        loop {
            match cursor.next() {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) if self.keep_going && error.is_corruption() => {
                    let gap = gap_after(&self.snapshot, tree, after.as_deref())?;
                    self.leave_out(walked, &gap.in_words(walked.keys), &error);
                    let Some(resumed) = gap.resume else { return Ok(()) };
                    cursor = resumed;
                }
                Err(error) => return Err(error.into()),
            }
            match cursor.row() {
                Ok((key, value)) => visit(key, value, cursor.expires()?)?,
                Err(error) if is_of_one_record(&error) || self.keep_going && error.is_corruption() => {
                    let key = show_key(cursor.key(), walked.keys);
                    self.leave_out(walked, &format!("the record {key}"), &error);
                }
                Err(error) => return Err(error.into()),
            }
            if self.keep_going {
                after = Some(cursor.key().to_vec());
            }
        }
    }

    /// Shows `visit` each pair of a tree with many values to a key.
    pub fn pairs(&mut self, tree: &MultiTree, walked: Walked<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        let mut cursor = self.snapshot.pair_cursor(tree);
        loop {
            match cursor.next() {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) if self.keep_going && error.is_corruption() => {
                    // Nothing says where the next pair begins that can be read.
                    let gap = Gap { after, resume: None };
                    self.leave_out(walked, &gap.in_words(walked.keys), &error);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            let (key, value) = cursor.pair();
            visit(key, value, None)?;
            if self.keep_going {
                after = Some(key.to_vec());
            }
        }
    }

    fn leave_out(&mut self, walked: Walked<'_>, what: &str, error: &Error) {
        self.left_out.push(format!("{}: {what}: {error}", show_name(walked.name)));
    }
}

/// Whether the records behind the one with this error can be read.
pub fn is_of_one_record(error: &Error) -> bool {
    matches!(error, Error::MergeFailed { .. })
}
