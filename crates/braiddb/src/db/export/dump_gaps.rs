//! What a dump passes over because it cannot be read.
//!
//! A value that is damaged costs its record. A block of a run that is damaged costs all keys from where the dump stands up to the first key of
//! the run's next whole block, that key included, in all runs: an older version must not pass for the record.

use super::dump_source::{DumpRange, DumpSource};
use crate::{
    base::{Error, Result},
    table::Run,
};
use std::{path::Path, sync::Arc};

/// Keys that a dump lacks because they could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpGap {
    /// The number of the tree.
    pub tree: u32,
    /// The first key that may be missing; of a tree of many values, key and value as they are kept together.
    pub from: Vec<u8>,
    /// The first key after it that is in the dump, if it exists; `None`: the tree's end.
    pub to: Option<Vec<u8>>,
    /// What could not be read, and why.
    pub detail: String,
}

impl DumpRange {
    /// Goes past what an error is about; false if that cannot be told. `present` is the key of a record whose value could not be read.
    pub(in crate::db) fn skip(&mut self, source: &DumpSource, error: &Error, present: Option<Vec<u8>>) -> Result<bool> {
        let Error::Corruption { path, offset, detail } = error else { return Ok(false) };
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

/// A key past all that the damaged block at an offset of a run may have versions of.
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
            // A newer version of that key may stand at the end of the block before.
            Ok(pinned) => return Ok(Some([pinned.entry(0)?.key, &[0]].concat())),
            Err(error) if error.is_corruption() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some([&run.meta().largest[..], &[0]].concat()))
}
