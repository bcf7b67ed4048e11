//! Syncs and preallocation on Apple systems.

use std::{fs::File, io, os::fd::AsRawFd};

/// Makes written data durable, or with `by_barriers` orders it before later writes.
///
/// Some network file systems support neither call; then `fsync` must do.
pub(super) fn sync(file: &File, by_barriers: bool) -> io::Result<()> {
    let command = if by_barriers { libc::F_BARRIERFSYNC } else { libc::F_FULLFSYNC };
    // SAFETY: the file is borrowed, so its descriptor is open; these commands take no argument.
    match again(|| unsafe { libc::fcntl(file.as_raw_fd(), command) }) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTSUP | libc::EINVAL | libc::ENOTTY)) => {
            // SAFETY: as above.
            again(|| unsafe { libc::fsync(file.as_raw_fd()) })
        }
        other => other,
    }
}

/// Allocates the first `len` bytes and extends the file. Returns false if the file system cannot.
pub(super) fn allocate(file: &File, len: u64) -> io::Result<bool> {
    let present = file.metadata()?.len();
    let Some(more) = len.checked_sub(present).filter(|more| *more > 0) else { return Ok(true) };
    let Ok(more) = i64::try_from(more) else { return Err(io::ErrorKind::FileTooLarge.into()) };
    let mut store = libc::fstore_t {
        fst_flags: libc::F_ALLOCATEALL,
        fst_posmode: libc::F_PEOFPOSMODE,
        fst_offset: 0,
        fst_length: more,
        fst_bytesalloc: 0,
    };
    // SAFETY: the file is borrowed, so its descriptor is open; this command takes this structure.
    match again(|| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_PREALLOCATE, &raw mut store) }) {
        Ok(()) => file.set_len(len).map(|()| true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTSUP | libc::EINVAL | libc::ENOTTY)) => Ok(false),
        Err(e) => Err(e),
    }
}

fn again(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
