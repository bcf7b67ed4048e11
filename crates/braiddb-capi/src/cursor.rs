//! Cursors: seek and step in both directions.

use crate::{
    boundary::{Failure, Outcome, braid_slice, bytes, free, handle, run, set},
    code::braid_code::*,
    options::new_handle,
    place::{AnyTree, Place, TransactionCell},
    tree::braid_tree,
};
use braiddb::{Cursor, Key, Tree, Value, views::MultiCursor};
use std::{
    ffi::c_void,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

/// A position in a tree: of the moment of `braid_cursor_new`, or of the tree's snapshot or
/// transaction.
pub struct braid_cursor {
    at: Mutex<At>,
}

enum At {
    Plain(Box<Cursor>),
    Multi(Box<MultiCursor>),
    Transaction(OfTransaction),
}

/// Finds each row again: an iterator would borrow the transaction.
struct OfTransaction {
    cell: Arc<TransactionCell>,
    tree: Tree,
    row: Option<(Key, Value)>,
    /// Without a row: whether the cursor is after the last row or before the first.
    is_after_last: bool,
}

type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

impl OfTransaction {
    fn find(&mut self, range: KeyBounds<'_>, is_forward: bool) -> Outcome<bool> {
        let tree = &self.tree;
        let row = self.cell.with(|transaction| {
            let mut rows = transaction.range(tree, range);
            let row = if is_forward { rows.next() } else { rows.next_back() };
            Ok(row.transpose()?)
        })?;
        let is_found = row.is_some();
        self.is_after_last = !is_found && is_forward;
        self.row = row;
        Ok(is_found)
    }

    fn step(&mut self, is_forward: bool) -> Outcome<bool> {
        match (self.row.take(), is_forward) {
            (None, true) if self.is_after_last => Ok(false),
            (None, false) if !self.is_after_last => Ok(false),
            (None, _) => self.find((Bound::Unbounded, Bound::Unbounded), is_forward),
            (Some((key, _)), true) => self.find((Bound::Excluded(&key), Bound::Unbounded), true),
            (Some((key, _)), false) => self.find((Bound::Unbounded, Bound::Excluded(&key)), false),
        }
    }
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
    /** To the previous row. */
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
    fn go(&mut self, how: i32, key: &[u8]) -> Outcome<bool> {
        let unknown = || Failure::argument(format!("{how} is no `braid_move`"));
        Ok(match self {
            At::Plain(cursor) => match how {
                FIRST => cursor.seek_first()?,
                LAST => cursor.seek_last()?,
                NEXT => cursor.next()?,
                PREV => cursor.prev()?,
                SEEK => cursor.seek(key)?,
                SEEK_BEFORE => cursor.seek_before(key)?,
                _ => return Err(unknown()),
            },
            At::Multi(cursor) => match how {
                FIRST => cursor.seek_first()?,
                LAST => cursor.seek_last()?,
                NEXT => cursor.next()?,
                PREV => cursor.prev()?,
                SEEK => cursor.seek(key)?,
                SEEK_BEFORE => cursor.seek_before(key)?,
                _ => return Err(unknown()),
            },
            At::Transaction(cursor) => match how {
                FIRST => cursor.find((Bound::Unbounded, Bound::Unbounded), true)?,
                LAST => cursor.find((Bound::Unbounded, Bound::Unbounded), false)?,
                NEXT => cursor.step(true)?,
                PREV => cursor.step(false)?,
                SEEK => cursor.find((Bound::Included(key), Bound::Unbounded), true)?,
                SEEK_BEFORE => cursor.find((Bound::Unbounded, Bound::Excluded(key)), false)?,
                _ => return Err(unknown()),
            },
        })
    }

    fn row(&self) -> Outcome<Option<(&[u8], &[u8])>> {
        Ok(match self {
            At::Plain(cursor) => {
                if cursor.is_on_row() {
                    Some(cursor.row()?)
                } else {
                    None
                }
            }
            At::Multi(cursor) => cursor.is_on_pair().then(|| cursor.pair()),
            At::Transaction(cursor) => cursor.row.as_ref().map(|(key, value)| (&**key, &**value)),
        })
    }
}

/// Returns a cursor, on no row yet. Not for trees of many values per key in transactions: use a scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_new(tree: *const braid_tree, cursor: *mut *mut braid_cursor) -> i32 {
    // SAFETY: the header's rules.
    unsafe {
        new_handle(cursor, "cursor", || {
            let tree = handle(tree, "tree")?;
            let at = match (&tree.tree, &tree.place) {
                (AnyTree::Plain(plain), Place::Latest) => At::Plain(Box::new(plain.cursor())),
                (AnyTree::Plain(plain), Place::Snapshot(snapshot)) => At::Plain(Box::new(snapshot.cursor(plain))),
                (AnyTree::Multi(multi), Place::Latest) => At::Multi(Box::new(multi.cursor())),
                (AnyTree::Multi(multi), Place::Snapshot(snapshot)) => {
                    At::Multi(Box::new(snapshot.multi_tree(multi).cursor()))
                }
                (AnyTree::Plain(plain), Place::Transaction(cell)) => At::Transaction(OfTransaction {
                    cell: Arc::clone(cell),
                    tree: plain.clone(),
                    row: None,
                    is_after_last: false,
                }),
                (AnyTree::Multi(_), Place::Transaction(_)) => {
                    return Err(Failure::argument("pairs of a transaction have no cursor: use `braid_scan_new`"));
                }
            };
            Ok(braid_cursor { at: Mutex::new(at) })
        })
    }
}

/// Moves the cursor: `how` is a `braid_move`, of which seeks take `key`. `BRAID_END` if there is no
/// such row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_cursor_move(
    cursor: *mut braid_cursor,
    how: i32,
    key: *const c_void,
    key_len: usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let key = if how == SEEK || how == SEEK_BEFORE { bytes(key, key_len)? } else { &[] };
        let mut at = handle(cursor, "cursor")?.at.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(if at.go(how, key)? { BRAID_OK } else { BRAID_END })
    })
}

/// Returns the cursor's row: valid until its next move. Either pointer may be NULL. `BRAID_END` if it
/// is on none.
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
