//! Writes without the log.

use crate::{
    base::{Error, Result, SequenceNumber},
    db::handles::database::Db,
};

impl Db {
    /// Returns when everything is durable that was committed up to the commit that stored this application cursor
    /// ([`crate::Batch::set_application_cursor`]): the next open finds that cursor or a later one, whatever happens. For commits with
    /// [`crate::Durability::None`], whose contents it flushes; where all commits are in the log, it is synced.
    ///
    /// The cursor is one that no flush has written yet, or the last one that any has; `NotFound` for others. Among those that are in memory it
    /// is searched for from the last one back.
    pub fn flush_to(&self, cursor: impl AsRef<[u8]>) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.health.check_writable()?;
        if let Some(sequence) = engine.commit_of_cursor(cursor.as_ref()) {
            return engine.make_durable(sequence);
        }
        // It may have been flushed since it was looked for, and be the last one still.
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

    /// Returns when everything up to a commit of this number, or the last one before it, is durable: see [`Db::flush_to`].
    pub fn flush_through(&self, commit: SequenceNumber) -> Result<()> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        engine.make_durable(commit)
    }
}
