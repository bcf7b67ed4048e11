//! Transactions that are begun again until nobody is in the way.

use super::{database::Db, transaction::handle::Transaction};
use crate::{
    base::{Error, Result},
    db::{engine::settings::Durability, write::update_scope::UpdateScope},
};

/// How often a transaction is begun again.
const RETRIES_MAX: u32 = 1000;

/// How often one is that was in use for so long that it expired: what takes that long each time should not go on for ever.
const EXPIRIES_MAX: u32 = 3;

/// So often without a pause.
const RETRIES_AT_ONCE: u32 = 4;

/// The longest pause, in microseconds; the first are shorter.
const PAUSE_US_MAX: u64 = 2000;

impl Db {
    /// Runs `work` in a transaction, and commits that. On a conflict ([`crate::Error::is_conflict`]) both are done again, after a
    /// pause that is random and grows; after 1000 times the conflict is returned. If the transaction was in use for longer than
    /// [`crate::Builder::reader_age_max`] allows, both are done again three times at most. So `work` may run more than
    /// once, and its other effects should bear that. If it returns an error, nothing is committed.
    ///
    /// Inside `work`, write through the transaction alone: `tx.put(&tree, ..)`. A write to the same database that bypasses
    /// the transaction, as [`crate::Tree::put`] or [`Db::write`], would take effect at once, and again with each retry. On the
    /// thread that runs `work` such a write fails with `InvalidArgument`, and nothing is written. Other threads that `work`
    /// starts are not recognized. Transactions that `work` begins itself, and new trees, are separate commits.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let counters = db.tree("counters")?;
    /// let next = |value: Option<braiddb::Value>| value.map_or(0, |v| v[0]) + 1;
    /// let visits = db.update(|tx| {
    ///     let visits = next(tx.get(&counters, b"visits")?);
    ///     tx.put(&counters, b"visits", [visits])?;
    ///     Ok(visits)
    /// })?;
    /// assert_eq!(visits, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update<R>(&self, work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        self.update_with(self.engine().settings.durability, work)
    }

    /// [`Db::update`] with another durability than the database's.
    pub fn update_with<R>(&self, durability: Durability, mut work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        let (mut retries, mut expiries) = (0, 0);
        loop {
            let transaction = self.begin()?;
            let scope = UpdateScope::begin(self.engine());
            let worked = work(&transaction);
            drop(scope);
            let done = match worked {
                Ok(result) => transaction.commit_with(durability).map(|_| result),
                Err(e) => {
                    // Before the pause: it keeps a snapshot.
                    drop(transaction);
                    Err(e)
                }
            };
            match done {
                Err(e) if e.is_conflict() => self.pause(retries, e)?,
                Err(e) if e.is_reader_expired() && expiries < EXPIRIES_MAX => {
                    expiries += 1;
                    self.pause(retries, e)?;
                }
                done => return done,
            }
            retries += 1;
        }
    }

    /// Lets others get out of the way, after so many tries again; the conflict if there were enough of them.
    pub(in crate::db) fn pause(&self, retries: u32, conflict: Error) -> Result<()> {
        if retries >= RETRIES_MAX {
            return Err(conflict);
        }
        let engine = self.engine();
        engine.counters.note_retry();
        if retries < RETRIES_AT_ONCE {
            return Ok(());
        }
        let longest = (1_u64 << (retries - RETRIES_AT_ONCE).min(20)).min(PAUSE_US_MAX);
        let runtime = &engine.settings.runtime;
        runtime.sleep_us(runtime.random_u64() % longest + 1);
        Ok(())
    }
}
