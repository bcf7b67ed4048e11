//! LMDB with `MDB_DUPSORT`: one read transaction and one cursor, as for its plain rows.

use super::{
    Lmdb, Setup,
    engine::Engine,
    lmdb::{as_slice, as_val, check},
    multi::{MultiEngine, MultiReader, VisitPair},
};
use crate::data::Key;
use anyhow::Result;
use lmdb_master_sys as ffi;
use std::ptr;

pub struct LmdbMulti(Lmdb);

impl LmdbMulti {
    pub fn open(setup: Setup<'_>) -> Result<LmdbMulti> {
        Ok(LmdbMulti(Lmdb::open_with(setup, ffi::MDB_DUPSORT)?))
    }
}

impl MultiEngine for LmdbMulti {
    fn add(&self, pairs: &[(Key, Key)]) -> Result<()> {
        let txn = self.0.begin(0)?;
        let done = pairs.iter().try_for_each(|(key, value)| {
            // SAFETY: the transaction is open and this thread's; LMDB copies key and value and
            // changes neither.
            check(unsafe { ffi::mdb_put(txn, self.0.dbi(), &mut as_val(key), &mut as_val(value), 0) })
        });
        // SAFETY: either call ends the transaction, which is not used again.
        unsafe {
            if done.is_err() {
                ffi::mdb_txn_abort(txn);
                return done;
            }
            check(ffi::mdb_txn_commit(txn))
        }
    }

    fn settle(&self) -> Result<()> {
        self.0.flush()
    }

    fn reader(&self) -> Result<Box<dyn MultiReader + '_>> {
        let txn = self.0.begin(ffi::MDB_RDONLY)?;
        let mut reader = LmdbMultiReader { _lmdb: &self.0, txn, cursor: ptr::null_mut() };
        // SAFETY: the transaction is open.
        check(unsafe { ffi::mdb_cursor_open(txn, self.0.dbi(), &mut reader.cursor) })?;
        Ok(Box::new(reader))
    }
}

struct LmdbMultiReader<'a> {
    _lmdb: &'a Lmdb,
    txn: *mut ffi::MDB_txn,
    cursor: *mut ffi::MDB_cursor,
}

impl LmdbMultiReader<'_> {
    /// Moves the cursor; returns true and sets `key` and `value` if it found a pair.
    fn go(&mut self, key: &mut ffi::MDB_val, value: &mut ffi::MDB_val, operation: ffi::MDB_cursor_op) -> Result<bool> {
        // SAFETY: the cursor's transaction is open and this thread's.
        match unsafe { ffi::mdb_cursor_get(self.cursor, key, value, operation) } {
            ffi::MDB_NOTFOUND => Ok(false),
            code => check(code).map(|()| true),
        }
    }

    fn show(
        &mut self,
        key: &[u8],
        first: ffi::MDB_cursor_op,
        next: ffi::MDB_cursor_op,
        visit: VisitPair<'_>,
    ) -> Result<()> {
        let (mut key, mut value) = (as_val(key), as_val(&[]));
        let mut operation = first;
        while self.go(&mut key, &mut value, operation)? {
            // SAFETY: just filled by LMDB; the transaction is still open.
            unsafe { visit(as_slice(&key), as_slice(&value)) };
            operation = next;
        }
        Ok(())
    }
}

impl MultiReader for LmdbMultiReader<'_> {
    fn contains(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.go(&mut as_val(key), &mut as_val(value), ffi::MDB_GET_BOTH)
    }

    fn count(&mut self, key: &[u8]) -> Result<u64> {
        // SAFETY: the read transaction is open and this thread's, and owns the cursor. Neither is
        // used in between.
        unsafe {
            ffi::mdb_txn_reset(self.txn);
            check(ffi::mdb_txn_renew(self.txn))?;
            check(ffi::mdb_cursor_renew(self.txn, self.cursor))?;
        }
        self.count_by_cursor(key)
    }

    fn count_by_cursor(&mut self, key: &[u8]) -> Result<u64> {
        if !self.go(&mut as_val(key), &mut as_val(&[]), ffi::MDB_SET)? {
            return Ok(0);
        }
        let mut count = 0;
        // SAFETY: the cursor is on a key.
        check(unsafe { ffi::mdb_cursor_count(self.cursor, &mut count) })?;
        Ok(count as u64)
    }

    fn values(&mut self, key: &[u8], visit: VisitPair<'_>) -> Result<()> {
        self.show(key, ffi::MDB_SET_KEY, ffi::MDB_NEXT_DUP, visit)
    }

    fn seek_value(&mut self, key: &[u8], value: &[u8], visit: VisitPair<'_>) -> Result<()> {
        let mut found = as_val(value);
        if self.go(&mut as_val(key), &mut found, ffi::MDB_GET_BOTH_RANGE)? {
            // SAFETY: just filled by LMDB; the transaction is still open.
            visit(key, unsafe { as_slice(&found) });
        }
        Ok(())
    }

    fn all(&mut self, visit: VisitPair<'_>) -> Result<()> {
        self.show(b"", ffi::MDB_FIRST, ffi::MDB_NEXT, visit)
    }
}

impl Drop for LmdbMultiReader<'_> {
    fn drop(&mut self) {
        // SAFETY: cursor and transaction end here and are not used again.
        unsafe {
            if !self.cursor.is_null() {
                ffi::mdb_cursor_close(self.cursor);
            }
            ffi::mdb_txn_abort(self.txn);
        }
    }
}
