//! Starts write-back on Linux.
//!
//! Neither the standard library nor rustix has the call, so it is declared here.

use std::{
    ffi::{c_int, c_uint},
    fs::File,
    os::fd::AsRawFd,
};

const SYNC_FILE_RANGE_WRITE: c_uint = 2;

// SAFETY: as declared by Linux's C libraries with 64-bit file offsets.
unsafe extern "C" {
    fn sync_file_range(file: c_int, offset: i64, len: i64, flags: c_uint) -> c_int;
}

/// Starts writing `len` bytes at `offset`. Failures are ignored: the next sync reports them.
pub(super) fn start(file: &File, offset: u64, len: u64) {
    if let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) {
        // SAFETY: the file is borrowed, so its descriptor is open; the call takes no pointers.
        unsafe { sync_file_range(file.as_raw_fd(), offset, len, SYNC_FILE_RANGE_WRITE) };
    }
}
