//! libmdbx through its C interface. Transactions and cursors are renewed, not recreated, as its
//! documentation advises; each stays with the thread that made it.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::{Context, Result, bail};
use mdbx_sys as ffi;
use std::{
    ffi::{CStr, CString},
    os::unix::ffi::OsStrExt,
    ptr,
};

const LOAD_BATCH_LEN: usize = 100_000;
const READERS: u64 = 64;

pub struct Mdbx {
    env: *mut ffi::MDBX_env,
    dbi: ffi::MDBX_dbi,
}

// SAFETY: all threads may use an environment and its dbis ("Thread safety" in mdbx.h). Transactions
// may not be shared; they never leave the call or reader they were made for.
unsafe impl Send for Mdbx {}
// SAFETY: as above.
unsafe impl Sync for Mdbx {}

fn check(code: i32) -> Result<()> {
    if code == ffi::MDBX_SUCCESS {
        return Ok(());
    }
    // SAFETY: mdbx_strerror returns a static string for any code.
    let text = unsafe { CStr::from_ptr(ffi::mdbx_strerror(code)) };
    bail!("libmdbx: {} ({code})", text.to_string_lossy())
}

fn as_val(bytes: &[u8]) -> ffi::MDBX_val {
    ffi::MDBX_val { iov_len: bytes.len(), iov_base: bytes.as_ptr().cast_mut().cast() }
}

/// # Safety
///
/// libmdbx has filled the value, and its transaction outlives the slice.
unsafe fn as_slice<'a>(val: &ffi::MDBX_val) -> &'a [u8] {
    if val.iov_len == 0 {
        return &[];
    }
    // SAFETY: the caller promises that it points to that many bytes of the map.
    unsafe { std::slice::from_raw_parts(val.iov_base.cast(), val.iov_len) }
}

impl Mdbx {
    pub fn open(setup: Setup<'_>) -> Result<Mdbx> {
        // mdbx.h advises to reuse freed pages last in, first out: they are still cached.
        let mut flags = ffi::MDBX_NOSTICKYTHREADS | ffi::MDBX_NOMEMINIT | ffi::MDBX_LIFORECLAIM;
        if !setup.durable {
            // mdbx.h: WRITEMAP is faster if the data fits into memory. UTTERLY_NOSYNC is LMDB's
            // NOSYNC: writes survive the end of the process, but not a power failure.
            flags |= ffi::MDBX_UTTERLY_NOSYNC | ffi::MDBX_WRITEMAP;
        }
        if setup.access == Access::Cold {
            // mdbx.h: for random reads of data larger than memory.
            flags |= ffi::MDBX_NORDAHEAD;
        }
        let path = CString::new(setup.folder.as_os_str().as_bytes())?;
        let map_bytes = (8 * setup.data_bytes + (1 << 30)) as usize & !0xffff;
        let mut mdbx = Mdbx { env: ptr::null_mut(), dbi: 0 };
        // SAFETY: create, configure and open follow the order of mdbx.h; on failure Drop closes the
        // environment.
        unsafe {
            check(ffi::mdbx_env_create(&mut mdbx.env))?;
            check(ffi::mdbx_env_set_geometry(mdbx.env, 0, -1, map_bytes as isize, -1, 0, -1))?;
            check(ffi::mdbx_env_set_option(mdbx.env, ffi::MDBX_opt_max_readers, READERS))?;
            check(ffi::mdbx_env_open(mdbx.env, path.as_ptr(), flags, 0o644)).context("mdbx_env_open")?;
        }
        let txn = mdbx.begin(0)?;
        // SAFETY: the transaction is this thread's and ends here.
        unsafe {
            check(ffi::mdbx_dbi_open(txn, ptr::null(), 0, &mut mdbx.dbi))?;
            check(ffi::mdbx_txn_commit_ex(txn, ptr::null_mut()))?;
        }
        Ok(mdbx)
    }

    fn begin(&self, flags: ffi::MDBX_txn_flags_t) -> Result<*mut ffi::MDBX_txn> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open.
        check(unsafe { ffi::mdbx_txn_begin_ex(self.env, ptr::null_mut(), flags, &mut txn, ptr::null_mut()) })?;
        Ok(txn)
    }

    fn commit(&self, ops: &[Op<'_>], put_flags: u32) -> Result<()> {
        let txn = self.begin(0)?;
        let done = ops.iter().try_for_each(|op| {
            let key = as_val(op.key);
            // SAFETY: the transaction is open and this thread's; libmdbx copies key and value and
            // changes neither.
            let code = unsafe {
                match op.value {
                    Some(value) => ffi::mdbx_put(txn, self.dbi, &key, &mut as_val(value), put_flags),
                    None => ffi::mdbx_del(txn, self.dbi, &key, ptr::null()),
                }
            };
            if code == ffi::MDBX_NOTFOUND { Ok(()) } else { check(code) }
        });
        // SAFETY: either call ends the transaction, which is not used again.
        unsafe {
            if done.is_err() {
                let _ = ffi::mdbx_txn_abort_ex(txn, ptr::null_mut());
                return done;
            }
            check(ffi::mdbx_txn_commit_ex(txn, ptr::null_mut()))
        }
    }
}

impl Drop for Mdbx {
    fn drop(&mut self) {
        if !self.env.is_null() {
            // SAFETY: readers and transactions borrow this, so none is left.
            unsafe { ffi::mdbx_env_close_ex(self.env, false) };
        }
    }
}

impl Engine for Mdbx {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        self.commit(ops, 0)
    }

    fn append(&self, ops: &[Op<'_>]) -> Result<()> {
        // mdbx.h: "This option allows fast bulk loading when keys are already known to be in the correct order."
        self.commit(ops, ffi::MDBX_APPEND)
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        let txn = self.begin(ffi::MDBX_TXN_RDONLY)?;
        let mut reader = MdbxReader { mdbx: self, txn, cursor: ptr::null_mut() };
        // SAFETY: the transaction is open.
        check(unsafe { ffi::mdbx_cursor_open(txn, self.dbi, &mut reader.cursor) })?;
        Ok(Box::new(reader))
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: the environment is open.
        match unsafe { ffi::mdbx_env_sync_ex(self.env, true, false) } {
            ffi::MDBX_RESULT_TRUE => Ok(()),
            code => check(code),
        }
    }
}

struct MdbxReader<'a> {
    mdbx: &'a Mdbx,
    txn: *mut ffi::MDBX_txn,
    cursor: *mut ffi::MDBX_cursor,
}

impl MdbxReader<'_> {
    fn show(
        &mut self,
        from: &[u8],
        first: ffi::MDBX_cursor_op,
        next: ffi::MDBX_cursor_op,
        visit: Visit<'_>,
    ) -> Result<()> {
        let (mut key, mut value) = (as_val(from), as_val(&[]));
        let mut operation = first;
        loop {
            // SAFETY: the cursor's transaction is open and this thread's.
            match unsafe { ffi::mdbx_cursor_get(self.cursor, &mut key, &mut value, operation) } {
                ffi::MDBX_NOTFOUND => return Ok(()),
                code => check(code)?,
            }
            // SAFETY: just filled by libmdbx; the transaction is still open.
            if !unsafe { visit(as_slice(&key), as_slice(&value)) } {
                return Ok(());
            }
            operation = next;
        }
    }
}

impl Reader for MdbxReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        // SAFETY: reset, then renewal of the read transaction and its cursor, as libmdbx demands.
        unsafe {
            check(ffi::mdbx_txn_reset(self.txn))?;
            check(ffi::mdbx_txn_renew(self.txn))?;
            check(ffi::mdbx_cursor_renew(self.txn, self.cursor))
        }
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut value = as_val(&[]);
        // SAFETY: the transaction is open and this thread's.
        match unsafe { ffi::mdbx_get(self.txn, self.mdbx.dbi, &as_val(key), &mut value) } {
            ffi::MDBX_NOTFOUND => return Ok(false),
            code => check(code)?,
        }
        // SAFETY: just filled by libmdbx; the transaction is still open.
        found(unsafe { as_slice(&value) });
        Ok(true)
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        // libmdbx has no empty keys.
        let first = if from.is_empty() { ffi::MDBX_FIRST } else { ffi::MDBX_SET_RANGE };
        self.show(from, first, ffi::MDBX_NEXT, visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        self.show(b"", ffi::MDBX_LAST, ffi::MDBX_PREV, visit)
    }
}

impl Drop for MdbxReader<'_> {
    fn drop(&mut self) {
        // SAFETY: cursor and transaction end here and are not used again.
        unsafe {
            if !self.cursor.is_null() {
                ffi::mdbx_cursor_close(self.cursor);
            }
            let _ = ffi::mdbx_txn_abort_ex(self.txn, ptr::null_mut());
        }
    }
}
