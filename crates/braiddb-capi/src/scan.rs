//! Iteration over a range, row by row or many rows in one call.

use crate::{
    boundary::{Failure, Outcome, braid_slice, free, handle, maybe_bytes, run, set},
    code::braid_code::*,
    options::new_handle,
    place::{AnyTree, Place, TransactionCell},
    tree::braid_tree,
};
use braiddb::{Cursor, Key, MultiTree, Tree, Value, views::MultiCursor};
use std::{
    collections::VecDeque,
    ffi::c_void,
    ops::{Bound, ControlFlow},
    sync::{Arc, Mutex, PoisonError},
    vec,
};

/// The range begins after `start`.
pub const BRAID_START_EXCLUSIVE: u32 = 1;
/// The range includes `end`.
pub const BRAID_END_INCLUSIVE: u32 = 2;
/// `start` is a prefix: the range has all keys that begin with it; `end` must be NULL.
pub const BRAID_PREFIX: u32 = 4;
/// A scan goes from the end to the start.
pub const BRAID_REVERSE: u32 = 8;

/// A range of keys: from `start` on, up to but without `end`, unless `flags` say otherwise. A
/// `data` of NULL is no bound. A NULL range has all keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_range {
    pub start: braid_slice,
    pub end: braid_slice,
    pub flags: u32,
}

/// A row that `braid_scan_fill` copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_row {
    pub key: braid_slice,
    pub value: braid_slice,
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start: Bound<Vec<u8>>,
    pub(crate) end: Bound<Vec<u8>>,
    is_reverse: bool,
}

impl Range {
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }

    fn is_before_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Included(start) => key < start.as_slice(),
            Bound::Excluded(start) => key <= start.as_slice(),
            Bound::Unbounded => false,
        }
    }

    fn is_after_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key > end.as_slice(),
            Bound::Excluded(end) => key >= end.as_slice(),
            Bound::Unbounded => false,
        }
    }
}

/// The least key after all with this prefix.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    match prefix.iter().rposition(|&byte| byte < 0xff) {
        None => Bound::Unbounded,
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            Bound::Excluded(end)
        }
    }
}

pub(crate) unsafe fn range_of(range: *const braid_range) -> Outcome<Range> {
    // SAFETY: the header's rules.
    let Some(range) = (unsafe { range.as_ref() }) else {
        return Ok(Range { start: Bound::Unbounded, end: Bound::Unbounded, is_reverse: false });
    };
    let all = BRAID_START_EXCLUSIVE | BRAID_END_INCLUSIVE | BRAID_PREFIX | BRAID_REVERSE;
    if range.flags & !all != 0 {
        return Err(Failure::argument(format!("the flags {:#x} of the range are unknown", range.flags & !all)));
    }
    let has = |flag| range.flags & flag != 0;
    // SAFETY: the header's rules.
    let (start, end) = unsafe { (maybe_bytes(range.start)?, maybe_bytes(range.end)?) };
    let is_reverse = has(BRAID_REVERSE);
    if has(BRAID_PREFIX) {
        if end.is_some() || has(BRAID_START_EXCLUSIVE) || has(BRAID_END_INCLUSIVE) {
            return Err(Failure::argument("a prefix takes neither an end nor flags of bounds"));
        }
        let prefix = start.unwrap_or_default();
        return Ok(Range { start: Bound::Included(prefix.to_vec()), end: after_prefix(prefix), is_reverse });
    }
    let bound = |bytes: Option<&[u8]>, is_included| match bytes {
        None => Bound::Unbounded,
        Some(bytes) if is_included => Bound::Included(bytes.to_vec()),
        Some(bytes) => Bound::Excluded(bytes.to_vec()),
    };
    Ok(Range {
        start: bound(start, !has(BRAID_START_EXCLUSIVE)),
        end: bound(end, has(BRAID_END_INCLUSIVE)),
        is_reverse,
    })
}

/// Rows of a range, in order.
pub struct braid_scan {
    walk: Mutex<Walk>,
}

struct Walk {
    rows: Rows,
    range: Range,
    /// The current row is not consumed yet: it did not fit.
    is_kept: bool,
    is_begun: bool,
    is_ended: bool,
    /// Came after rows that a call returned: the next call returns it.
    failure: Option<Failure>,
}

enum Rows {
    Plain(Box<Cursor>),
    Multi(Box<MultiCursor>),
    Chunks(Chunks),
    List(vec::IntoIter<(Vec<u8>, Vec<u8>)>, (Vec<u8>, Vec<u8>)),
}

/// Rows of a transaction, read in chunks that grow: an iterator would borrow the transaction.
struct Chunks {
    cell: Arc<TransactionCell>,
    tree: AnyTree,
    ready: VecDeque<(Key, Value)>,
    row: Option<(Key, Value)>,
    rows_next: usize,
    is_read: bool,
}

const CHUNK_ROWS: usize = 32;
const CHUNK_ROWS_MAX: usize = 1024;

impl Chunks {
    fn new(cell: Arc<TransactionCell>, tree: AnyTree) -> Chunks {
        Chunks { cell, tree, ready: VecDeque::new(), row: None, rows_next: CHUNK_ROWS, is_read: false }
    }

    fn fill(&mut self, range: &Range) -> Outcome<()> {
        let after = self.row.take();
        let rows = self.rows_next;
        self.rows_next = (2 * rows).min(CHUNK_ROWS_MAX);
        let mut found = Vec::with_capacity(rows);
        match self.tree.clone() {
            AnyTree::Plain(tree) => self.fill_plain(&tree, range, after, rows, &mut found)?,
            AnyTree::Multi(tree) => self.fill_multi(&tree, range, after, rows, &mut found)?,
        }
        self.is_read = found.len() < rows;
        self.ready.extend(found);
        Ok(())
    }

    fn fill_plain(
        &self,
        tree: &Tree,
        range: &Range,
        after: Option<(Key, Value)>,
        rows: usize,
        found: &mut Vec<(Key, Value)>,
    ) -> Outcome<()> {
        let (mut start, mut end) = range.bounds();
        match &after {
            Some((key, _)) if range.is_reverse => end = Bound::Excluded(key),
            Some((key, _)) => start = Bound::Excluded(key),
            None => {}
        }
        self.cell.with(|transaction| {
            let mut iter = transaction.range(tree, (start, end));
            while found.len() < rows {
                let next = if range.is_reverse { iter.next_back() } else { iter.next() };
                let Some(row) = next else { break };
                found.push(row?);
            }
            Ok(())
        })
    }

    /// First the rest of the last pair's key, then the keys behind it.
    fn fill_multi(
        &self,
        tree: &MultiTree,
        range: &Range,
        after: Option<(Key, Value)>,
        rows: usize,
        found: &mut Vec<(Key, Value)>,
    ) -> Outcome<()> {
        let (mut start, mut end) = range.bounds();
        self.cell.with(|transaction| {
            if let Some((key, value)) = &after {
                let rest = if range.is_reverse {
                    (Bound::Unbounded, Bound::Excluded(&**value))
                } else {
                    (Bound::Excluded(&**value), Bound::Unbounded)
                };
                let multi = transaction.multi_tree(tree);
                let mut iter = multi.values_range(key, rest);
                while found.len() < rows {
                    let next = if range.is_reverse { iter.next_back() } else { iter.next() };
                    let Some(value) = next else { break };
                    found.push((key.clone(), value?));
                }
                if range.is_reverse {
                    end = Bound::Excluded(key);
                } else {
                    start = Bound::Excluded(key);
                }
            }
            let multi = transaction.multi_tree(tree);
            let mut iter = multi.range((start, end));
            while found.len() < rows {
                let next = if range.is_reverse { iter.next_back() } else { iter.next() };
                let Some(pair) = next else { break };
                found.push(pair?);
            }
            Ok(())
        })
    }

    fn step(&mut self, range: &Range) -> Outcome<bool> {
        if self.ready.is_empty() && !self.is_read {
            self.fill(range)?;
        }
        match self.ready.pop_front() {
            None => Ok(false),
            Some(row) => {
                self.row = Some(row);
                Ok(true)
            }
        }
    }
}

impl Walk {
    fn new(rows: Rows, range: Range) -> Walk {
        Walk { rows, range, is_kept: false, is_begun: false, is_ended: false, failure: None }
    }

    fn step(&mut self) -> Outcome<bool> {
        if self.is_ended {
            return Ok(false);
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let range = &self.range;
        let is_on_row = match &mut self.rows {
            Rows::Plain(cursor) => match (is_first, range.is_reverse) {
                (false, false) => cursor.next()?,
                (false, true) => cursor.prev()?,
                (true, false) => match &range.start {
                    Bound::Unbounded => cursor.seek_first()?,
                    Bound::Included(start) => cursor.seek(start)?,
                    Bound::Excluded(start) => cursor.seek(start)? && (cursor.key() != start || cursor.next()?),
                },
                (true, true) => match &range.end {
                    Bound::Unbounded => cursor.seek_last()?,
                    Bound::Excluded(end) => cursor.seek_before(end)?,
                    // The least key after `end`.
                    Bound::Included(end) => cursor.seek_before([end, &[0][..]].concat())?,
                },
            },
            Rows::Multi(cursor) => match (is_first, range.is_reverse) {
                (false, false) => cursor.next()?,
                (false, true) => cursor.prev()?,
                (true, false) => match &range.start {
                    Bound::Unbounded => cursor.seek_first()?,
                    Bound::Included(start) => cursor.seek(start)?,
                    Bound::Excluded(start) => cursor.seek([start, &[0][..]].concat())?,
                },
                (true, true) => match &range.end {
                    Bound::Unbounded => cursor.seek_last()?,
                    Bound::Excluded(end) => cursor.seek_before(end)?,
                    Bound::Included(end) => cursor.seek_before([end, &[0][..]].concat())?,
                },
            },
            Rows::Chunks(chunks) => chunks.step(range)?,
            Rows::List(rest, current) => match rest.next() {
                None => false,
                Some(row) => {
                    *current = row;
                    true
                }
            },
        };
        let is_inside = is_on_row && {
            let key = self.row()?.0;
            !self.range.is_before_start(key) && !self.range.is_after_end(key)
        };
        self.is_ended = !is_inside;
        Ok(is_inside)
    }

    fn row(&self) -> Outcome<(&[u8], &[u8])> {
        match &self.rows {
            Rows::Plain(cursor) => Ok(cursor.row()?),
            Rows::Multi(cursor) => Ok(cursor.pair()),
            Rows::Chunks(chunks) => {
                let (key, value) = chunks.row.as_ref().ok_or_else(|| Failure::argument("the scan is on no row"))?;
                Ok((key, value))
            }
            Rows::List(_, (key, value)) => Ok((key, value)),
        }
    }
}

/// Memory of the caller that rows are copied to.
struct Filled<'a> {
    buffer: *mut u8,
    used: usize,
    capacity: usize,
    rows: &'a mut [braid_row],
    count: usize,
}

impl Filled<'_> {
    fn is_full(&self) -> bool {
        self.count == self.rows.len()
    }

    /// False if the row does not fit.
    fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let len = key.len() + value.len();
        if self.is_full() || self.capacity - self.used < len {
            return false;
        }
        // SAFETY: `used + len` is within the caller's buffer, which the header requires to be
        // writable and of this call alone.
        unsafe {
            let at = self.buffer.add(self.used);
            at.copy_from_nonoverlapping(key.as_ptr(), key.len());
            at.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
            self.rows[self.count] = braid_row {
                key: braid_slice { data: at.cast_const().cast(), len: key.len() },
                value: braid_slice { data: at.add(key.len()).cast_const().cast(), len: value.len() },
            };
        }
        self.used += len;
        self.count += 1;
        true
    }
}

impl Walk {
    fn fill(&mut self, filled: &mut Filled<'_>, needed: &mut usize) -> Outcome<bool> {
        if !std::mem::take(&mut self.is_kept) && !self.step()? {
            return Ok(false);
        }
        loop {
            // The fast path copies from the block, without a call for each row.
            if let Rows::Plain(cursor) = &mut self.rows
                && !self.range.is_reverse
                && !self.is_ended
            {
                let range = &self.range;
                let stopped = cursor.try_for_each(|key, value| {
                    if range.is_after_end(key) {
                        ControlFlow::Break(true)
                    } else if filled.push(key, value) {
                        ControlFlow::Continue(())
                    } else {
                        *needed = key.len() + value.len();
                        ControlFlow::Break(false)
                    }
                })?;
                self.is_kept = matches!(stopped, ControlFlow::Break(false));
                self.is_ended = !self.is_kept;
                return Ok(filled.count > 0 || self.is_kept);
            }
            let (key, value) = self.row()?;
            if !filled.push(key, value) {
                *needed = key.len() + value.len();
                self.is_kept = true;
                return Ok(true);
            }
            if filled.is_full() || !self.step()? {
                return Ok(true);
            }
        }
    }
}

impl braid_scan {
    fn new(rows: Rows, range: Range) -> braid_scan {
        braid_scan { walk: Mutex::new(Walk::new(rows, range)) }
    }

    pub(crate) fn of_list(rows: Vec<(Vec<u8>, Vec<u8>)>) -> braid_scan {
        let range = Range { start: Bound::Unbounded, end: Bound::Unbounded, is_reverse: false };
        braid_scan::new(Rows::List(rows.into_iter(), Default::default()), range)
    }

    fn of_tree(tree: &braid_tree, range: Range) -> braid_scan {
        let rows = match (&tree.tree, &tree.place) {
            (tree, Place::Transaction(cell)) => Rows::Chunks(Chunks::new(Arc::clone(cell), tree.clone())),
            (AnyTree::Plain(tree), Place::Latest) => Rows::Plain(Box::new(tree.cursor())),
            (AnyTree::Plain(tree), Place::Snapshot(snapshot)) => Rows::Plain(Box::new(snapshot.cursor(tree))),
            (AnyTree::Multi(tree), Place::Latest) => Rows::Multi(Box::new(tree.cursor())),
            (AnyTree::Multi(tree), Place::Snapshot(snapshot)) => {
                Rows::Multi(Box::new(snapshot.multi_tree(tree).cursor()))
            }
        };
        braid_scan::new(rows, range)
    }
}

/// Begins a scan of a range of keys, NULL for all. Its rows are those of the tree at this moment, or
/// of its snapshot or transaction. Of a tree of many values per key, each pair is a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_new(
    tree: *const braid_tree,
    range: *const braid_range,
    scan: *mut *mut braid_scan,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe { new_handle(scan, "scan", || Ok(braid_scan::of_tree(handle(tree, "tree")?, range_of(range)?))) }
}

/// Moves to the next row. Its key and value are valid until the next call with the scan; either
/// pointer may be NULL. `BRAID_END` after the last row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_next(scan: *mut braid_scan, key: *mut braid_slice, value: *mut braid_slice) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        let mut walk = handle(scan, "scan")?.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = walk.failure.take() {
            return Err(failure);
        }
        if !std::mem::take(&mut walk.is_kept) && !walk.step()? {
            set(key, braid_slice::NULL);
            set(value, braid_slice::NULL);
            return Ok(BRAID_END);
        }
        let row = walk.row()?;
        set(key, braid_slice::of(row.0));
        set(value, braid_slice::of(row.1));
        Ok(BRAID_OK)
    })
}

/// Copies the next rows, at most `rows_max` and as far as they fit, to `buffer`, and their places in
/// it to `rows`. `count` takes their number. `BRAID_END` with a count of 0 after the last row;
/// `BRAID_BUFFER_TOO_SMALL` if the next row alone does not fit: then `needed`, which may be NULL,
/// takes its size, and the scan stays before it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_fill(
    scan: *mut braid_scan,
    buffer: *mut c_void,
    capacity: usize,
    rows: *mut braid_row,
    rows_max: usize,
    count: *mut usize,
    needed: *mut usize,
) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(count, 0);
        set(needed, 0);
        let too_long = isize::MAX as usize;
        if rows.is_null() || rows_max == 0 || rows_max > too_long / size_of::<braid_row>() {
            return Err(Failure::argument("`rows` takes at least one row"));
        }
        if (buffer.is_null() && capacity > 0) || capacity > too_long {
            return Err(Failure::argument("`buffer` is NULL or too long"));
        }
        // A NULL buffer of no bytes takes empty rows only.
        let buffer = if buffer.is_null() { std::ptr::dangling_mut() } else { buffer.cast() };
        let rows = std::slice::from_raw_parts_mut(rows, rows_max);
        let mut filled = Filled { buffer, used: 0, capacity, rows, count: 0 };
        let mut row_bytes = 0;
        let mut walk = handle(scan, "scan")?.walk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = walk.failure.take() {
            return Err(failure);
        }
        let outcome = walk.fill(&mut filled, &mut row_bytes);
        set(count, filled.count);
        match outcome {
            Err(failure) if filled.count > 0 => {
                walk.failure = Some(failure);
                Ok(BRAID_OK)
            }
            Err(failure) => Err(failure),
            Ok(false) => Ok(BRAID_END),
            Ok(true) if filled.count == 0 => {
                set(needed, row_bytes);
                let message = format!("the next row has {row_bytes} bytes, and the buffer {capacity}");
                Err(Failure { code: BRAID_BUFFER_TOO_SMALL, message })
            }
            Ok(true) => Ok(BRAID_OK),
        }
    })
}

/// Frees a scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_free(scan: *mut braid_scan) {
    // SAFETY: the header's rules.
    unsafe { free(scan) };
}
