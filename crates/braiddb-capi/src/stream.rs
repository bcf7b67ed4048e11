//! Large values, piece by piece.

use crate::{
    boundary::{Failure, bytes, free, handle, run, set, slot},
    code::braid_code::*,
    options::{durability, new_handle},
    place::read_at,
    tree::braid_tree,
};
use braiddb::streams::{StreamReader, StreamWriter};
use std::{
    ffi::c_void,
    io::{Read, Seek, SeekFrom, Write},
    sync::{Mutex, PoisonError},
};

/// Writes a value of up to 4 GiB - 1 in pieces.
pub struct braid_stream_writer {
    /// None after the commit.
    open: Mutex<Option<StreamWriter>>,
}

/// Reads a value in pieces. It stays the value of the moment it was opened.
pub struct braid_stream_reader {
    reader: Mutex<StreamReader>,
    len: u64,
}

fn of_io(error: std::io::Error) -> Failure {
    match error.downcast::<braiddb::Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure { code: BRAID_IO, message: error.to_string() },
    }
}

/// Begins a value of `key`. It is visible after `braid_stream_commit`. Not for trees of snapshots
/// and transactions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_writer_new(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    writer: *mut *mut braid_stream_writer,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(writer, "writer", || {
            let (tree, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
            let stream = tree.latest("a stream")?.plain()?.stream_writer(key)?;
            Ok(braid_stream_writer { open: Mutex::new(Some(stream)) })
        })
    }
}

fn committed() -> Failure {
    Failure::argument("the stream was committed: free the writer, and begin another one")
}

/// Appends bytes. After a failure, free the writer, and begin again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_write(writer: *mut braid_stream_writer, data: *const c_void, len: usize) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let data = bytes(data, len)?;
        let mut open = handle(writer, "writer")?.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_mut().ok_or_else(committed)?.write_all(data).map_err(of_io)?;
        Ok(BRAID_OK)
    })
}

/// Commits the value. The writer takes nothing more, also if this fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_commit(
    writer: *mut braid_stream_writer,
    durability: i32,
    sequence: *mut u64,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let mut open = handle(writer, "writer")?.open.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = open.take().ok_or_else(committed)?;
        let number = match self::durability(durability)? {
            Some(wanted) => stream.commit_with(wanted)?,
            None => stream.commit()?,
        };
        set(sequence, number);
        Ok(BRAID_OK)
    })
}

/// Frees a writer; without a commit, its value is discarded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_writer_free(writer: *mut braid_stream_writer) {
    // SAFETY: the header's rules.
    unsafe { free(writer) };
}

/// Opens the value of `key` for reading in pieces; any value, however it was written.
/// `BRAID_NOT_FOUND` and NULL if it is absent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_reader_new(
    tree: *const braid_tree,
    key: *const c_void,
    key_len: usize,
    reader: *mut *mut braid_stream_reader,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        slot(reader, "reader")?;
        let (tree, key) = (handle(tree, "tree")?, bytes(key, key_len)?);
        let plain = tree.tree.plain()?;
        let Some(found) = read_at!(tree, plain, stream(key))? else { return Ok(BRAID_NOT_FOUND) };
        let len = found.len();
        crate::boundary::give(reader, braid_stream_reader { reader: Mutex::new(found), len });
        Ok(BRAID_OK)
    })
}

/// Returns the value's length in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_len(reader: *const braid_stream_reader) -> u64 {
    // SAFETY: the header's rules.
    unsafe { reader.as_ref() }.map_or(0, |of| of.len)
}

/// Copies up to `capacity` bytes from `offset` on to `buffer`. `count` takes their number, which is
/// less only at the end; `BRAID_END` at or after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_read(
    reader: *mut braid_stream_reader,
    offset: u64,
    buffer: *mut c_void,
    capacity: usize,
    count: *mut usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(count, 0);
        if buffer.is_null() || capacity == 0 || capacity > isize::MAX as usize {
            return Err(Failure::argument("`buffer` takes at least one byte"));
        }
        let of = handle(reader, "reader")?;
        if offset >= of.len {
            return Ok(BRAID_END);
        }
        let wanted = usize::try_from(of.len - offset).map_or(capacity, |rest| rest.min(capacity));
        // The program may pass memory that was never written.
        buffer.cast::<u8>().write_bytes(0, wanted);
        let buffer = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), wanted);
        let mut reader = of.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(offset)).map_err(of_io)?;
        reader.read_exact(buffer).map_err(of_io)?;
        set(count, wanted);
        Ok(BRAID_OK)
    })
}

/// Frees a reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_stream_reader_free(reader: *mut braid_stream_reader) {
    // SAFETY: the header's rules.
    unsafe { free(reader) };
}
