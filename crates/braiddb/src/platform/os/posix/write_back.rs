//! Has the system begin to write what it holds of a file, on Linux.
//!
//! Neither the standard library nor rustix has this call, so it is declared here as the C library has it.

use std::{
    ffi::{c_int, c_uint},
    fs::File,
    os::fd::AsRawFd,
};

/// Begin to write; wait for nothing.
const SYNC_FILE_RANGE_WRITE: c_uint = 2;

// SAFETY: as the C libraries of Linux declare it, whose file offsets have 64 bits.
unsafe extern "C" {
    fn sync_file_range(file: c_int, offset: i64, len: i64, flags: c_uint) -> c_int;
}

/// Begins to write `len` bytes at `offset`. Whether that fails does not matter: the next sync tells.
pub(super) fn start(file: &File, offset: u64, len: u64) {
    if let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) {
        // SAFETY: the descriptor is open as long as the file is borrowed, and the call takes no pointers.
        unsafe { sync_file_range(file.as_raw_fd(), offset, len, SYNC_FILE_RANGE_WRITE) };
    }
}
