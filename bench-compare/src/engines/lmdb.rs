//! LMDB through its C interface. Transactions and cursors are renewed, not recreated, as its
//! documentation advises; each stays with the thread that made it.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::{Context, Result, bail};
use lmdb_master_sys as ffi;
use std::{
    ffi::{CStr, CString},
    os::unix::ffi::OsStrExt,
    ptr,
};

const LOAD_BATCH_LEN: usize = 100_000;
const READERS: u32 = 64;

pub struct Lmdb {
    env: *mut ffi::MDB_env,
    dbi: ffi::MDB_dbi,
}

// SAFETY: all threads may use an environment and its dbis ("Thread safety" in lmdb.h). Transactions
// may not be shared; they never leave the call or reader they were made for.
unsafe impl Send for Lmdb {}
// SAFETY: as above.
unsafe impl Sync for Lmdb {}

pub(super) fn check(code: i32) -> Result<()> {
    if code == ffi::MDB_SUCCESS {
        return Ok(());
    }
    // SAFETY: mdb_strerror returns a static string for any code.
    let text = unsafe { CStr::from_ptr(ffi::mdb_strerror(code)) };
    bail!("LMDB: {} ({code})", text.to_string_lossy())
}

pub(super) fn as_val(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// # Safety
///
/// LMDB has filled the value, and its transaction outlives the slice.
pub(super) unsafe fn as_slice<'a>(val: &ffi::MDB_val) -> &'a [u8] {
    if val.mv_size == 0 {
        return &[];
    }
    // SAFETY: the caller promises that it points to that many bytes of the map.
    unsafe { std::slice::from_raw_parts(val.mv_data.cast(), val.mv_size) }
}

impl Lmdb {
    pub fn open(setup: Setup<'_>) -> Result<Lmdb> {
        Lmdb::open_with(setup, 0)
    }

    pub(super) fn open_with(setup: Setup<'_>, dbi_flags: u32) -> Result<Lmdb> {
        let mut flags = ffi::MDB_NOTLS | ffi::MDB_NOMEMINIT;
        if !setup.durable {
            // lmdb.h: WRITEMAP may be faster if the data fits into memory. Without a sync at
            // commit, the page cache keeps the writes when the process ends.
            flags |= ffi::MDB_NOSYNC | ffi::MDB_WRITEMAP;
        }
        if setup.access == Access::Cold {
            // lmdb.h: for random reads of data larger than memory.
            flags |= ffi::MDB_NORDAHEAD;
        }
        let path = CString::new(setup.folder.as_os_str().as_bytes())?;
        let map_bytes = (8 * setup.data_bytes + (1 << 30)) as usize & !0xffff;
        let mut lmdb = Lmdb { env: ptr::null_mut(), dbi: 0 };
        // SAFETY: create, configure and open follow the order of lmdb.h; on failure Drop closes the
        // environment.
        unsafe {
            check(ffi::mdb_env_create(&mut lmdb.env))?;
            check(ffi::mdb_env_set_mapsize(lmdb.env, map_bytes as _))?;
            check(ffi::mdb_env_set_maxreaders(lmdb.env, READERS))?;
            check(ffi::mdb_env_open(lmdb.env, path.as_ptr(), flags, 0o644)).context("mdb_env_open")?;
        }
        let txn = lmdb.begin(0)?;
        // SAFETY: the transaction is this thread's and ends here.
        unsafe {
            check(ffi::mdb_dbi_open(txn, ptr::null(), dbi_flags, &mut lmdb.dbi))?;
            check(ffi::mdb_txn_commit(txn))?;
        }
        Ok(lmdb)
    }

    pub(super) fn dbi(&self) -> ffi::MDB_dbi {
        self.dbi
    }

    pub(super) fn begin(&self, flags: u32) -> Result<*mut ffi::MDB_txn> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open.
        check(unsafe { ffi::mdb_txn_begin(self.env, ptr::null_mut(), flags, &mut txn) })?;
        Ok(txn)
    }

    fn commit(&self, ops: &[Op<'_>], put_flags: u32) -> Result<()> {
        let txn = self.begin(0)?;
        let done = ops.iter().try_for_each(|op| {
            let mut key = as_val(op.key);
            // SAFETY: the transaction is open and this thread's; LMDB copies key and value and
            // changes neither.
            let code = unsafe {
                match op.value {
                    Some(value) => ffi::mdb_put(txn, self.dbi, &mut key, &mut as_val(value), put_flags),
                    None => ffi::mdb_del(txn, self.dbi, &mut key, ptr::null_mut()),
                }
            };
            if code == ffi::MDB_NOTFOUND { Ok(()) } else { check(code) }
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
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        if !self.env.is_null() {
            // SAFETY: readers and transactions borrow this, so none is left.
            unsafe { ffi::mdb_env_close(self.env) };
        }
    }
}

impl Engine for Lmdb {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        self.commit(ops, 0)
    }

    fn append(&self, ops: &[Op<'_>]) -> Result<()> {
        // lmdb.h: "This option allows fast bulk loading when keys are already known to be in the correct order."
        self.commit(ops, ffi::MDB_APPEND)
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let txn = self.begin(ffi::MDB_RDONLY)?;
        let mut reader = LmdbReader { lmdb: self, txn, cursor: ptr::null_mut() };
        // SAFETY: the transaction is open.
        check(unsafe { ffi::mdb_cursor_open(txn, self.dbi, &mut reader.cursor) })?;
        Ok(Box::new(reader))
    }

    fn pop_first(&self, found: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let txn = self.begin(0)?;
        let (mut cursor, mut key, mut value) = (ptr::null_mut(), as_val(&[]), as_val(&[]));
        // SAFETY: the transaction is open and this thread's; the cursor is closed before it ends.
        // Key and value are read before the row is deleted.
        unsafe {
            let mut code = ffi::mdb_cursor_open(txn, self.dbi, &mut cursor);
            if code == ffi::MDB_SUCCESS {
                code = ffi::mdb_cursor_get(cursor, &mut key, &mut value, ffi::MDB_FIRST);
                if code == ffi::MDB_SUCCESS {
                    found(as_slice(&key), as_slice(&value));
                    code = ffi::mdb_cursor_del(cursor, 0);
                }
                ffi::mdb_cursor_close(cursor);
            }
            if code != ffi::MDB_SUCCESS {
                ffi::mdb_txn_abort(txn);
                return if code == ffi::MDB_NOTFOUND { Ok(false) } else { check(code).map(|()| false) };
            }
            check(ffi::mdb_txn_commit(txn)).map(|()| true)
        }
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: the environment is open.
        check(unsafe { ffi::mdb_env_sync(self.env, 1) })
    }
}

struct LmdbReader<'a> {
    lmdb: &'a Lmdb,
    txn: *mut ffi::MDB_txn,
    cursor: *mut ffi::MDB_cursor,
}

impl LmdbReader<'_> {
    fn show(
        &mut self,
        from: &[u8],
        first: ffi::MDB_cursor_op,
        next: ffi::MDB_cursor_op,
        visit: Visit<'_>,
    ) -> Result<()> {
        let (mut key, mut value) = (as_val(from), as_val(&[]));
        let mut operation = first;
        loop {
            // SAFETY: the cursor's transaction is open and this thread's.
            match unsafe { ffi::mdb_cursor_get(self.cursor, &mut key, &mut value, operation) } {
                ffi::MDB_NOTFOUND => return Ok(()),
                code => check(code)?,
            }
            // SAFETY: just filled by LMDB; the transaction is still open.
            if !unsafe { visit(as_slice(&key), as_slice(&value)) } {
                return Ok(());
            }
            operation = next;
        }
    }
}

impl Reader for LmdbReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        // SAFETY: reset, then renewal of the read transaction and its cursor, as LMDB demands.
        unsafe {
            ffi::mdb_txn_reset(self.txn);
            check(ffi::mdb_txn_renew(self.txn))?;
            check(ffi::mdb_cursor_renew(self.txn, self.cursor))
        }
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value = as_val(&[]);
        // SAFETY: the transaction is open and this thread's.
        match unsafe { ffi::mdb_get(self.txn, self.lmdb.dbi, &mut as_val(key), &mut value) } {
            ffi::MDB_NOTFOUND => return Ok(false),
            code => check(code)?,
        }
        // SAFETY: just filled by LMDB; the transaction is still open.
        found(unsafe { as_slice(&value) });
        Ok(true)
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        // LMDB has no empty keys.
        let first = if from.is_empty() { ffi::MDB_FIRST } else { ffi::MDB_SET_RANGE };
        self.show(from, first, ffi::MDB_NEXT, visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        self.show(b"", ffi::MDB_LAST, ffi::MDB_PREV, visit)
    }
}

impl Drop for LmdbReader<'_> {
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
