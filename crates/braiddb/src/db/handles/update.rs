//! Transactions that retry on conflict.

use super::{database::Db, transaction::handle::Transaction};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{
        engine::settings::Durability,
        write::{
            conflict_window::waiting_until,
            update_scope::{UpdateScope, check_not_nested},
        },
    },
};
use std::any::Any;

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
    /// database on this thread, such as [`crate::Tree::put`] or another `update`, fails with
    /// `InvalidArgument`: it would commit separately, again with each retry. Other threads are not
    /// checked. A transaction of [`Db::begin`], and new trees, are separate commits.
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
    pub fn update_with<R>(&self, durability: Durability, work: impl FnMut(&Transaction) -> Result<R>) -> Result<R> {
        self.try_update_with(durability, work)
    }

    /// Runs [`Db::update`] with an error type of the application. Annotate the closure's return
    /// type: `?` alone does not determine it.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let db = braiddb::Db::in_memory()?;
    /// let stock = db.tree("stock")?;
    /// stock.put("shirts", "70")?;
    /// let left = db.try_update(|tx| -> Result<u32, Box<dyn std::error::Error>> {
    ///     let shirts: u32 = tx.get(&stock, "shirts")?.ok_or("no shirts")?.to_str()?.parse()?;
    ///     tx.put(&stock, "shirts", (shirts - 1).to_string())?;
    ///     Ok(shirts - 1)
    /// })?;
    /// assert_eq!(left, 69);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_update<R, E: From<Error> + 'static>(
        &self,
        work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.try_update_with(self.engine().settings.durability, work)
    }

    /// Runs [`Db::try_update`] with the given durability.
    pub fn try_update_with<R, E: From<Error> + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<R, E> {
        self.update_at(durability, work).map(|(result, _)| result)
    }

    /// Runs [`Db::try_update_with`]; also returns the commit's sequence number.
    pub(in crate::db) fn update_at<R, E: From<Error> + 'static>(
        &self,
        durability: Durability,
        work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<(R, SequenceNumber), E> {
        self.update_while(durability, |retries| retries < RETRIES_MAX, || Ok(u64::MAX), work)
    }

    /// Runs [`Db::try_update_with`], but repeats a conflict while `may_retry` allows it, instead of
    /// 1000 times. `before_commit` runs before each commit, and its error ends the call. It returns
    /// the time until which the commit waits for an exclusive transaction.
    pub(crate) fn update_while<R, E: From<Error> + 'static>(
        &self,
        durability: Durability,
        mut may_retry: impl FnMut(u32) -> bool,
        before_commit: impl Fn() -> Result<u64>,
        mut work: impl FnMut(&Transaction) -> std::result::Result<R, E>,
    ) -> std::result::Result<(R, SequenceNumber), E> {
        check_not_nested(self.engine())?;
        let (mut retries, mut expiries) = (0, 0);
        loop {
            let transaction = self.begin()?;
            let scope = UpdateScope::begin(self.engine());
            let worked = work(&transaction);
            drop(scope);
            let (error, retry) = match worked {
                Ok(result) => match before_commit()
                    .and_then(|ends_ns| waiting_until(ends_ns, || transaction.commit_with(durability)))
                {
                    Ok(sequence) => return Ok((result, sequence)),
                    Err(e) => {
                        let retry = Retry::after(&e);
                        (E::from(e), retry)
                    }
                },
                // Drop the transaction before the pause: it pins a snapshot.
                Err(e) => {
                    let own = (&e as &dyn Any).downcast_ref::<Error>().map(Retry::after);
                    let retry = own
                        .unwrap_or_else(|| transaction.hold().check().err().as_ref().map_or(Retry::No, Retry::after));
                    drop(transaction);
                    (e, retry)
                }
            };
            let is_allowed = match retry {
                Retry::No => false,
                Retry::Conflict => true,
                Retry::Expired => {
                    expiries += 1;
                    expiries <= EXPIRIES_MAX
                }
            };
            if !is_allowed || !may_retry(retries) {
                return Err(error);
            }
            self.pause_before(retries);
            retries += 1;
        }
    }

    /// Pauses before a retry, or returns the conflict after the last.
    pub(in crate::db) fn pause(&self, retries: u32, conflict: Error) -> Result<()> {
        if retries >= RETRIES_MAX {
            return Err(conflict);
        }
        self.pause_before(retries);
        Ok(())
    }

    /// Pauses before a retry.
    fn pause_before(&self, retries: u32) {
        let engine = self.engine();
        engine.counters.note_retry();
        if retries >= RETRIES_AT_ONCE {
            let longest = (1_u64 << (retries - RETRIES_AT_ONCE).min(20)).min(PAUSE_US_MAX);
            let runtime = &engine.settings.runtime;
            runtime.sleep_us(runtime.random_u64() % longest + 1);
        }
    }
}

/// Action after a failed attempt.
#[derive(Clone, Copy)]
enum Retry {
    No,
    Conflict,
    Expired,
}

impl Retry {
    fn after(error: &Error) -> Retry {
        if error.is_conflict() {
            Retry::Conflict
        } else if error.is_reader_expired() {
            Retry::Expired
        } else {
            Retry::No
        }
    }
}
