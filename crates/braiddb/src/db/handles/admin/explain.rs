//! The steps of a get: see `db/read/explain.rs`.

use super::super::{snapshot::Snapshot, tree::Tree};
use crate::{
    base::Result,
    db::read::explain::{self, Explain},
};

impl Tree {
    /// Gets `key` and returns how: the memtables, runs, views, filters and blocks that the read
    /// touched, in order and with times, and where the value is.
    ///
    /// This is a real read, by the code of [`Tree::get`] with an observer. It moves blocks into the
    /// cache, so a second call shows fewer reads from disk. Value and key are not returned.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::stats::{FoundPlace, Outcome};
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let albums = db.tree("albums")?;
    /// albums.put(b"1", b"Ten")?;
    /// let explained = albums.explain(b"1")?;
    /// println!("{explained}");
    /// assert!(matches!(explained.outcome, Outcome::Found { bytes: 3, place: FoundPlace::Memtable(0), .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explain> {
        let key = self.checked(key.as_ref())?;
        explain::explain(self.db().engine(), self.state().id, key, None)
    }
}

impl Snapshot {
    /// Explains a get at the snapshot: see [`Tree::explain`].
    pub fn explain(&self, tree: &Tree, key: impl AsRef<[u8]>) -> Result<Explain> {
        self.check_tree(tree.state())?;
        let key = tree.checked(key.as_ref())?;
        explain::explain(self.db().engine(), tree.state().id, key, Some(self.hold()))
    }
}
