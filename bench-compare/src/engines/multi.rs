//! The interface of engines with many values per key.

use crate::data::Key;
use anyhow::Result;

pub type VisitPair<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

pub trait MultiEngine {
    /// Adds pairs in one commit.
    fn add(&self, pairs: &[(Key, Key)]) -> Result<()>;

    /// Writes buffered data out and waits until the engine is idle.
    fn settle(&self) -> Result<()>;

    fn reader(&self) -> Result<Box<dyn MultiReader + '_>>;
}

pub trait MultiReader {
    fn contains(&mut self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// Latest state.
    fn count(&mut self, key: &[u8]) -> Result<u64>;

    /// Counts by the cursor of the scans, at its snapshot.
    fn count_by_cursor(&mut self, key: &[u8]) -> Result<u64>;

    fn values(&mut self, key: &[u8], visit: VisitPair<'_>) -> Result<()>;

    /// The first value at or after `value`.
    fn seek_value(&mut self, key: &[u8], value: &[u8], visit: VisitPair<'_>) -> Result<()>;

    fn all(&mut self, visit: VisitPair<'_>) -> Result<()>;
}
