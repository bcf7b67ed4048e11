//! Taking the right to commit from an exclusive transaction that was lost.

use crate::{base::Result, db::handles::database::Db};

impl Db {
    /// Takes the right to commit from the exclusive transaction that is open, if there is one, so that others commit again.
    /// Returns whether there was one. The transaction itself stays readable; its commit fails with a conflict
    /// ([`crate::Error::is_conflict`]), and nothing of it is applied.
    ///
    /// For a transaction that is lost: leaked, or held by a thread that will not end it. Commits that wait for it fail after
    /// [`crate::Builder::exclusive_wait_max`] with [`crate::Error::ExclusiveOpen`].
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let tree = db.tree("t")?;
    /// std::mem::forget(db.begin_exclusive()?);
    /// assert!(db.revoke_exclusive()?);
    /// tree.put(b"k", b"v")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn revoke_exclusive(&self) -> Result<bool> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let mut write = engine.commits.write.lock();
        Ok(engine.end_exclusive(&mut write))
    }
}
