//! Durability of commits without WAL.

use crate::{
    base::{Error, Result, SequenceNumber},
    db::{handles::database::Db, maintenance::flush, write::wal_bypass},
};

impl Db {
    /// Makes all commits durable up to the one with this application cursor
    /// ([`crate::Batch::set_application_cursor`]). Flushes commits with
    /// [`crate::Durability::None`]; if all are in the log, syncs it.
    ///
    /// The cursor must be unflushed or the last flushed one, or the call fails with `NotFound`.
    /// Searches from the newest back.
    pub fn flush_to(&self, cursor: impl AsRef<[u8]>) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        if let Some(sequence) = wal_bypass::commit_of_cursor(engine, cursor.as_ref()) {
            return flush::make_durable(engine, sequence);
        }
        // A flush may have made it the last flushed cursor.
        let last = self.application_cursor()?;
        if last.as_deref() == Some(cursor.as_ref()) {
            return Ok(());
        }
        let text = cursor.as_ref().escape_ascii().to_string();
        Err(Error::NotFound(format!(
            "no commit that may not be durable yet has the application cursor \"{text}\": if there ever was one, it is durable, and a later \
             one has taken its place"
        )))
    }

    /// Makes all commits up to `commit` durable: see [`Db::flush_to`].
    pub fn flush_through(&self, commit: SequenceNumber) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        flush::make_durable(engine, commit)
    }
}
