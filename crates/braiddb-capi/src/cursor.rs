//! Cursors: seek and step in both directions.

use crate::{
    boundary::{Failure, Outcome, braid_slice, bytes, free, handle, run, set},
    code::braid_code::*,
    options::new_handle,
    range::Range,
    rows::{Move, Rows},
    tree::braid_tree,
};
use std::{
    ffi::c_void,
    sync::{Mutex, PoisonError},
};

/// A position in a tree: of the moment of `braid_cursor_new`, or of the tree's snapshot or
/// transaction.
pub struct braid_cursor {
    at: Mutex<At>,
}

struct At {
    rows: Rows,
    /// Of the last move. The position is lost.
    failure: Option<Failure>,
}

/// A move of a cursor.
#[repr(i32)]
#[derive(Clone, Copy, Debug)]
pub enum braid_move {
    /** To the first row. */
    BRAID_FIRST = 0,
    /** To the last row. */
    BRAID_LAST = 1,
    /** To the next row; to the first one if the cursor is new. */
    BRAID_NEXT = 2,
    /** To the previous row; to the last one if the cursor is new. */
    BRAID_PREV = 3,
    /** To the first row with a key at or after `key`. */
    BRAID_SEEK = 4,
    /** To the last row with a key before `key`. */
    BRAID_SEEK_BEFORE = 5,
}

const FIRST: i32 = braid_move::BRAID_FIRST as i32;
const LAST: i32 = braid_move::BRAID_LAST as i32;
const NEXT: i32 = braid_move::BRAID_NEXT as i32;
const PREV: i32 = braid_move::BRAID_PREV as i32;
const SEEK: i32 = braid_move::BRAID_SEEK as i32;
const SEEK_BEFORE: i32 = braid_move::BRAID_SEEK_BEFORE as i32;

impl At {
    fn go(&mut self, to: Move<'_>) -> Outcome<bool> {
        if let (Some(failure), Move::Next | Move::Prev) = (&self.failure, &to) {
            return Err(failure.clone());
        }
        let moved = self.rows.go(to, &Range::ALL);
        self.failure = moved.as_ref().err().cloned();
        moved
    }

    fn row(&self) -> Outcome<Option<(&[u8], &[u8])>> {
        if self.failure.is_some() { Ok(None) } else { self.rows.row() }
    }
}

/// Returns a cursor, on no row yet. In a transaction, the keys that its moves pass count as read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_new(tree: *const braid_tree, cursor: *mut *mut braid_cursor) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(cursor, "cursor", || {
            let rows = Rows::of_tree(handle(tree, "tree")?);
            Ok(braid_cursor { at: Mutex::new(At { rows, failure: None }) })
        })
    }
}

/// Moves the cursor: `how` is a `braid_move`, of which seeks take `key`. `BRAID_END` if there is no
/// such row. After a failed move it is on no row, and steps fail again: seek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_move(
    cursor: *mut braid_cursor,
    how: i32,
    key: *const c_void,
    key_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let to = match how {
            FIRST => Move::First,
            LAST => Move::Last,
            NEXT => Move::Next,
            PREV => Move::Prev,
            SEEK => Move::Seek(bytes(key, key_len)?.into()),
            SEEK_BEFORE => Move::SeekBefore(bytes(key, key_len)?.into()),
            _ => return Err(Failure::argument(format!("{how} is no `braid_move`"))),
        };
        let mut at = handle(cursor, "cursor")?.at.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(if at.go(to)? { BRAID_OK } else { BRAID_END })
    })
}

/// Returns the cursor's row: valid until its next move. Either pointer may be NULL. `BRAID_END` if
/// it is on none. After a failure of the value (`BRAID_MERGE_FAILED`, `BRAID_CORRUPTION`) moves go
/// on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_row(
    cursor: *const braid_cursor,
    key: *mut braid_slice,
    value: *mut braid_slice,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(key, braid_slice::NULL);
        set(value, braid_slice::NULL);
        let at = handle(cursor, "cursor")?.at.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(row) = at.row()? else { return Ok(BRAID_END) };
        set(key, braid_slice::of(row.0));
        set(value, braid_slice::of(row.1));
        Ok(BRAID_OK)
    })
}

/// Frees a cursor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_free(cursor: *mut braid_cursor) {
    // SAFETY: the header's rules.
    unsafe { free(cursor) };
}
