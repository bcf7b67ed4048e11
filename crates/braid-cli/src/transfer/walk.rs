//! Walks over the records of a tree and skips unreadable ones.
//!
//! A record whose merge function fails is skipped and reported. A damaged range ends the walk, or
//! is skipped with `keep_going`.

use std::time::SystemTime;

use anyhow::Result;
use braiddb::{Error, MultiTree, Snapshot, Tree};

use super::gaps::{Gap, gap_after};
use crate::notation::{KeyNotation, show_key, show_name};

pub type Visit<'a> = dyn FnMut(&[u8], &[u8], Option<SystemTime>) -> Result<()> + 'a;

pub struct Walk {
    pub snapshot: Snapshot,
    pub keep_going: bool,
    pub left_out: Vec<String>,
}

#[derive(Clone, Copy)]
pub struct Walked<'a> {
    pub name: &'a str,
    pub keys: KeyNotation,
}

impl Walk {
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

    pub fn pairs(&mut self, tree: &MultiTree, walked: Walked<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let mut after: Option<Vec<u8>> = None;
        let mut cursor = self.snapshot.multi_tree(tree).cursor();
        loop {
            match cursor.next() {
                Ok(false) => return Ok(()),
                Ok(true) => {}
                Err(error) if self.keep_going && error.is_corruption() => {
                    // Pairs have no split keys, so the walk cannot resume.
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

pub fn is_of_one_record(error: &Error) -> bool {
    matches!(error, Error::MergeFailed { .. })
}
