//! Gaps of a dump in a damaged database.
//!
//! A damaged value costs its record. A damaged block of a run costs all keys, in all runs, from the
//! dump's position up to the first key of the run's next readable block, inclusive: an older
//! version must not pass for the record.

use super::dump_source::{DumpRange, DumpSource};
use crate::{
    base::{Corruption, Error, Result},
    table::Run,
};
use std::{path::Path, sync::Arc};

/// Keys missing in a dump because they could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpGap {
    /// The number of the tree.
    pub tree: u32,
    /// The first key that may be missing; in a multi-tree the encoded pair.
    pub from: Vec<u8>,
    /// The end of the gap (exclusive); `None`: the tree's end.
    pub to: Option<Vec<u8>>,
    /// The unreadable place and the reason.
    pub detail: String,
}

impl DumpRange {
    /// Skips the keys that an error affects; false if they are unknown. `present` is the key of an
    /// unreadable value.
    pub(in crate::db) fn skip(&mut self, source: &DumpSource, error: &Error, present: Option<Vec<u8>>) -> Result<bool> {
        let Error::Corruption(Corruption { path, offset, detail, .. }) = error else { return Ok(false) };
        let (from, next) = match present {
            Some(key) => {
                let next = [&key[..], &[0]].concat();
                (key, next)
            }
            None => match next_readable(source, path, *offset)? {
                Some(next) if next > self.next => (self.next.clone(), next),
                _ => return Ok(false),
            },
        };
        let user_key = |key: &[u8]| key.get(self.tree.first_key().len()..).unwrap_or_default().to_vec();
        let to = Some(&next).filter(|next| self.end.as_ref().is_none_or(|end| *next < end));
        let to = to.filter(|next| next.starts_with(&self.tree.first_key()));
        let detail = format!("{} at byte {offset}: {detail}", path.display());
        source.add_gap(DumpGap { tree: self.tree.0, from: user_key(&from), to: to.map(|key| user_key(key)), detail });
        self.next = next;
        Ok(true)
    }
}

/// Returns a key above all that may have versions in the damaged block at `offset`.
fn next_readable(source: &DumpSource, path: &Path, offset: u64) -> Result<Option<Vec<u8>>> {
    let engine = Arc::clone(source.engine());
    let (state, _) = engine.state_for(Some(source.hold()))?;
    let is_it = |run: &&Arc<Run>| run.path().file_name() == path.file_name();
    let mut runs =
        state.version.partitions.iter().flat_map(|partition| partition.all_runs()).map(|handle| handle.run());
    let Some(run) = runs.find(is_it) else { return Ok(None) };
    let end = run.end().block;
    let Some(damaged) = (0..end).find(|block| run.unit_of(*block).contains(&offset)) else { return Ok(None) };
    for block in damaged + 1..end {
        match run.pin(block) {
            // The previous block may end with a newer version of this key.
            Ok(pinned) => return Ok(Some([pinned.entry(0)?.key, &[0]].concat())),
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some([&run.meta().largest[..], &[0]].concat()))
}
