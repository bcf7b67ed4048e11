//! Values of a cursor's row that are not plain: blobs, merged values, and values that expire.

use super::super::expiry;
use super::Cursor;
use crate::{
    base::{Content, Cursor as _, EntryKind, Error, Result},
    db::{
        engine::key::TREE_ID_LEN,
        read::point_read::{self, Unresolved},
    },
    platform::SystemTime,
    table::blob::{BlobValue, Pieces},
};

impl Cursor {
    #[inline(never)]
    pub(super) fn row_there(&self) -> Result<(&[u8], &[u8])> {
        if let Some((key, value)) = self.scan.cursor.row_ahead() {
            return Ok((&key[TREE_ID_LEN..], value));
        }
        assert!(self.is_on_row(), "the cursor stands on no row");
        let entry = self.scan.cursor.entry_there();
        let mut value = entry.value;
        if entry.kind != EntryKind::Value {
            if let Some(Content { kind: EntryKind::Value, value, .. }) = Content::of(entry.kind, entry.value) {
                return Ok((&entry.key[TREE_ID_LEN..], value));
            }
            value = match self.blob.get() {
                Some(value) => value,
                None => {
                    let value = self.read_blob()?;
                    self.blob.get_or_init(|| value)
                }
            };
        }
        Ok((&entry.key[TREE_ID_LEN..], value))
    }

    /// Returns the current value's expiry time by the wall clock, if any. A merged value has that
    /// of the value beneath. Panics if there is no row.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use std::time::{Duration, SystemTime};
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let sessions = db.tree("sessions")?;
    /// sessions.put_until(b"7f3a", b"ann", SystemTime::now() + Duration::from_secs(60))?;
    /// let (copy, mut cursor) = (db.tree("copy")?, sessions.cursor());
    /// while cursor.next()? {
    ///     let (key, value) = cursor.row()?;
    ///     match cursor.expires()? {
    ///         Some(time) => copy.put_until(key, value, time)?,
    ///         None => copy.put(key, value)?,
    ///     };
    /// }
    /// assert!(copy.get_with_expiry(b"7f3a")?.unwrap().1.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn expires(&self) -> Result<Option<SystemTime>> {
        Ok(self.expires_us()?.and_then(|us| expiry::wall_time(self.engine(), us)))
    }

    /// Returns the length of the current value, without reading it if it is in a blob file. Panics
    /// if there is no row.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// let db = braiddb::Db::in_memory()?;
    /// let films = db.tree("films")?;
    /// films.put_stream(b"1", std::io::Read::take(std::io::repeat(7), 3_000_000))?;
    /// let mut cursor = films.cursor();
    /// assert!(cursor.next()?);
    /// assert_eq!(cursor.value_len()?, 3_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn value_len(&self) -> Result<u64> {
        assert!(self.is_on_row(), "the cursor stands on no row");
        if !self.scan.cursor.is_ahead() {
            let entry = self.scan.cursor.entry_there();
            let pieces = Content::of(entry.kind, entry.value).and_then(|content| Pieces::of(&content));
            if let Some(pieces) = pieces {
                return Ok(pieces.len());
            }
        }
        Ok(self.row()?.1.len() as u64)
    }

    pub(in crate::db) fn expires_us(&self) -> Result<Option<u64>> {
        assert!(self.is_on_row(), "the cursor stands on no row");
        if self.scan.cursor.is_ahead() {
            return Ok(None);
        }
        let entry = self.scan.cursor.entry_there();
        match entry.kind {
            EntryKind::Expiring => Ok(Content::of(entry.kind, entry.value).and_then(|content| content.expires_us)),
            EntryKind::Merge => {
                let found = point_read::get_unresolved(self.engine(), entry.key, Some(&self.hold))?;
                Ok(found.and_then(|found| found.expires_us))
            }
            _ => Ok(None),
        }
    }

    pub(in crate::db) fn is_merged(&self) -> bool {
        self.is_on_row() && !self.scan.cursor.is_ahead() && self.scan.cursor.entry_there().kind == EntryKind::Merge
    }

    #[cold]
    fn read_blob(&self) -> Result<BlobValue> {
        let engine = self.engine();
        let entry = self.scan.cursor.entry();
        let now_us = self.hold.held().taken_us;
        let damaged = |e| engine.catalog.with_tree(e, entry.key);
        let e = match point_read::resolve(engine, &self.scan.state, Unresolved::of(&entry), now_us) {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => Error::corruption(&engine.dir, 0, "a row was shown that has expired"),
            Err(e) => damaged(e),
        };
        // A later open may have removed the files.
        engine.health.check_open()?;
        if entry.kind != EntryKind::Merge {
            return Err(e);
        }
        // Look up the value beneath the operands, which also handles a damaged view.
        match point_read::get_unresolved(engine, entry.key, Some(&self.hold))? {
            Some(resolved) => Ok(resolved.value),
            None => Err(e),
        }
    }
}
