//! Exclusive transactions of members.
//!
//! The owner holds the right to commit for a connection of the member (`held.rs`), so it ends when
//! the member does. The member reads its own follower, at a state with all commits from before the
//! right: nothing changes until the right ends. An owner that ends takes the right along. Then others
//! may commit, so the transaction's commit is a conflict.

use super::{database::SharedDb, message::Request, seat::Seat, session::Deadline, transactions::SharedTransaction};
use crate::base::Result;
use std::time::Duration;

impl SharedDb {
    /// Begins a transaction that never conflicts, while all commits of all processes wait. Waits for
    /// it until the timeout, and then fails with [`crate::Error::ExclusiveOpen`] or [`crate::Error::NoOwner`].
    ///
    /// The right ends with the commit, the drop, or the end of this process. If another process is
    /// the owner and ends meanwhile, the commit fails with [`crate::Error::Conflict`]: begin again.
    /// [`SharedTransaction::commit`] has a timeout of its own; other commits wait for at most their
    /// timeouts, or [`crate::Builder::exclusive_wait_max`] if that is shorter.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// # if !cfg!(any(unix, windows)) { return Ok(()) }
    /// # let dir = std::env::temp_dir().join(format!("braiddb-doc-exclusive-{}", std::process::id()));
    /// let db = braiddb::Db::builder().open_shared(&dir)?;
    /// let albums = db.tree("albums")?;
    /// let tx = db.begin_exclusive()?;
    /// let of_tx = albums.in_transaction(&tx)?;
    /// if tx.get(&of_tx, "1")?.is_none() {
    ///     tx.put(&of_tx, "1", "Ten")?;
    /// }
    /// tx.commit()?;
    /// # db.close()?;
    /// # std::fs::remove_dir_all(dir).ok();
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_exclusive(&self) -> Result<SharedTransaction> {
        self.begin_exclusive_by(self.core().deadline())
    }

    /// Begins an exclusive transaction, but waits for at most `timeout` if that is shorter than
    /// [`crate::Builder::shared_timeout`].
    pub fn begin_exclusive_within(&self, timeout: Duration) -> Result<SharedTransaction> {
        self.begin_exclusive_by(self.core().deadline_within(timeout))
    }

    fn begin_exclusive_by(&self, deadline: Deadline) -> Result<SharedTransaction> {
        let core = self.core();
        core.check_process()?;
        loop {
            if let Some(owner) = core.await_role(deadline)? {
                let begun = owner.db().waiting_until(deadline.ends_ns, |db| db.begin_exclusive())?;
                return Ok(SharedTransaction::new(self, begun, None));
            }
            let Some(seat) = Seat::take(core, deadline, |left_us| Request::Begin { left_us })? else { continue };
            let db = self.shared.freshness.state_by(core, || deadline)?;
            // This process may have become the owner, which ended the right.
            if core.owner().is_none() {
                return Ok(SharedTransaction::new(self, db.begin_with_right_elsewhere()?, Some(seat)));
            }
        }
    }
}
