//! Finds records whose merge functions fail.

use super::{cursor::Cursor, database::Db};
use crate::{
    base::{Error, ReaderKind, Result},
    db::engine::{catalog::TreeState, read_hold::Hold},
};
use std::sync::Arc;

impl Db {
    /// Reads all records with pending merge operands and returns their number. Calls `found` with
    /// the error of each failing one ([`Error::MergeFailed`] names tree and key); a put or delete
    /// repairs it. Scans all trees at one snapshot.
    ///
    /// Damage ends the scan of its tree only; the first error is returned at the end.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let (counts, add) = (db.tree("counts")?, db.merge_function("add")?);
    /// counts.put(b"visits", b"many")?;
    /// counts.merge(b"visits", &add, 1_i64.to_le_bytes())?;
    /// let mut failing = Vec::new();
    /// assert_eq!(db.check_merges(|error| failing.push(error.to_string()))?, 1);
    /// assert!(failing[0].contains("\"visits\" of the tree \"counts\""), "{failing:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_merges(&self, mut found: impl FnMut(&Error)) -> Result<u64> {
        let engine = self.engine();
        engine.health.check_open()?;
        let hold = Hold::now(engine, ReaderKind::Iterator);
        let trees: Vec<Arc<TreeState>> = engine.catalog.by_name.read().values().cloned().collect();
        let (mut merged, mut first_error) = (0, None);
        for tree in trees.iter().filter(|tree| !tree.multi) {
            if let Err(e) = self.check_merges_of(tree, &hold, &mut merged, &mut found) {
                hold.check()?;
                first_error.get_or_insert(e);
            }
        }
        first_error.map_or(Ok(merged), Err)
    }

    fn check_merges_of(
        &self,
        tree: &Arc<TreeState>,
        hold: &Hold,
        merged: &mut u64,
        found: &mut impl FnMut(&Error),
    ) -> Result<()> {
        let mut cursor = Cursor::new(self, tree, Some(hold.clone()));
        while cursor.next()? {
            if !cursor.is_merged() {
                continue;
            }
            *merged += 1;
            match cursor.row() {
                Err(e) if e.is_merge_failed() => found(&e),
                row => row.map(|_| ())?,
            }
        }
        Ok(())
    }
}
