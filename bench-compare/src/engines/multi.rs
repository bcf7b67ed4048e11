//! What keeps many values to a key.

use crate::data::Key;
use anyhow::Result;

/// Shows a pair.
pub type VisitPair<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// An engine with many values to a key.
pub trait MultiEngine {
    /// Adds pairs as one commit.
    fn add(&self, pairs: &[(Key, Key)]) -> Result<()>;

    /// Writes out what is in memory only, and waits until work on it has ended.
    fn settle(&self) -> Result<()>;

    /// For one thread to read with. It sees at least what was there when it was made.
    fn reader(&self) -> Result<Box<dyn MultiReader + '_>>;
}

/// Reads.
pub trait MultiReader {
    /// Whether there is such a pair.
    fn contains(&mut self, key: &[u8], value: &[u8]) -> Result<bool>;

    /// How many values a key has now.
    fn count(&mut self, key: &[u8]) -> Result<u64>;

    /// The same at the moment and by the cursor of scans.
    fn count_by_cursor(&mut self, key: &[u8]) -> Result<u64>;

    /// Shows the values of a key, in order.
    fn values(&mut self, key: &[u8], visit: VisitPair<'_>) -> Result<()>;

    /// Shows the first value of a key at or after another, if there is one.
    fn seek_value(&mut self, key: &[u8], value: &[u8], visit: VisitPair<'_>) -> Result<()>;

    /// Shows all pairs, in order.
    fn all(&mut self, visit: VisitPair<'_>) -> Result<()>;
}
