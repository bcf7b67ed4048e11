//! Revokes the commit right of a leaked exclusive transaction.

use crate::{
    base::Result,
    db::{handles::database::Db, write::conflict_window},
};

impl Db {
    /// Revokes the commit right of the open exclusive transaction; returns false if there is none.
    /// The transaction stays readable, but its commit fails with a conflict
    /// ([`crate::Error::is_conflict`]).
    ///
    /// For a transaction that was leaked or whose thread is stuck. Otherwise, waiting commits fail
    /// with [`crate::Error::ExclusiveOpen`] after [`crate::Builder::exclusive_wait_max`].
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
        Ok(conflict_window::end_exclusive(engine, &mut write))
    }
}
