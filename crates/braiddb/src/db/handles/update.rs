//! Transactions that retry on conflict.

use super::{database::Db, transaction::handle::Transaction};
use crate::{
    base::{Error, Result},
    db::{engine::settings::Durability, write::update_scope::UpdateScope},
};

/// Maximum retries after a conflict.
const RETRIES_MAX: u32 = 1000;

/// Maximum retries after expiry: slow work must not loop forever.
const EXPIRIES_MAX: u32 = 3;

/// Retries without a pause.
const RETRIES_AT_ONCE: u32 = 4;

/// Maximum random pause in microseconds; the bound doubles from 1.
const PAUSE_US_MAX: u64 = 2000;

impl Db {
    /// Runs `work` in a transaction and commits it. A conflict ([`crate::Error::is_conflict`])
    /// repeats both after a random, growing pause, up to 1000 times; a transaction older than
    /// [`crate::Builder::reader_age_max`] is repeated up to 3 times. So `work` may run more than
    /// once. Its errors abort the transaction.
    ///
    /// Inside `work`, write only through the transaction: `tx.put(&tree, ..)`. Another write to the
    /// database on this thread, such as [`crate::Tree::put`], fails with `InvalidArgument`: it
    /// would commit separately, again with each retry. Other threads are not checked. Transactions
    /// that `work` begins, and new trees, are separate commits.
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

    /// Runs [`Db::update`] with the given durability.
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
                    // Before the pause: it pins a snapshot.
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

    /// Pauses before a retry, or returns the conflict after the last.
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
