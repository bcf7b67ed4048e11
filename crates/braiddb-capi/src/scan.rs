//! Iteration over a range, row by row or many rows in one call.

use crate::{
    boundary::{Failure, Outcome, braid_slice, free, handle, run, set},
    code::braid_code::*,
    options::new_handle,
    range::{Range, braid_range, range_of},
    rows::{Move, Rows},
    tree::braid_tree,
};
use std::{
    ffi::c_void,
    mem,
    ops::ControlFlow,
    sync::{Mutex, PoisonError},
};

/// A row that `braid_scan_fill` copied.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct braid_row {
    pub key: braid_slice,
    pub value: braid_slice,
}

/// Rows of a range, in order.
pub struct braid_scan {
    walk: Mutex<Walk>,
}

struct Walk {
    rows: Rows,
    range: Range,
    is_begun: bool,
    /// The current row was not returned: it did not fit.
    is_kept: bool,
    is_ended: bool,
    /// Result of the next call. Only a failure of one row's value is ever taken.
    failure: Option<Failure>,
}

/// The reason why `Walk::fill` stops at a row.
enum Stop {
    IsPast,
    DidNotFit,
    WasLast,
}

impl Walk {
    /// Runs a call. A failure of one value is passed; every other one is the result of all later
    /// calls, since the position is lost.
    fn call(&mut self, work: impl FnOnce(&mut Walk) -> Outcome) -> Outcome {
        let failed = match self.failure.take() {
            Some(failure) => Err(failure),
            None => work(self),
        };
        failed.inspect_err(|failure| {
            if !(failure.is_of_value() && self.rows.key().is_some()) {
                self.failure = Some(failure.clone());
            }
        })
    }

    /// Moves to the next row to return.
    fn step(&mut self) -> Outcome<bool> {
        if mem::take(&mut self.is_kept) {
            return Ok(true);
        }
        if self.is_ended {
            return Ok(false);
        }
        let is_forward = self.range.is_forward;
        let to = if mem::replace(&mut self.is_begun, true) {
            Move::step(is_forward)
        } else {
            Move::into_bounds(self.range.bounds(), is_forward)
        };
        self.rows.go(to, &self.range)?;
        self.is_ended = self.rows.key().is_none_or(|key| self.range.is_past(key));
        Ok(!self.is_ended)
    }

    fn next(&mut self) -> Outcome<Option<(&[u8], &[u8])>> {
        if self.step()? { self.rows.row() } else { Ok(None) }
    }

    fn fill(&mut self, filled: &mut Filled<'_>) -> Outcome<()> {
        if !self.step()? {
            return Ok(());
        }
        let range = &self.range;
        let stopped = self.rows.visit(range, |key, value| {
            if range.is_past(key) {
                ControlFlow::Break(Stop::IsPast)
            } else if !filled.push(key, value) {
                ControlFlow::Break(Stop::DidNotFit)
            } else if filled.count == filled.rows.len() {
                ControlFlow::Break(Stop::WasLast)
            } else {
                ControlFlow::Continue(())
            }
        });
        match stopped {
            Ok(ControlFlow::Break(Stop::DidNotFit)) => self.is_kept = true,
            Ok(ControlFlow::Break(Stop::WasLast)) => {}
            Ok(ControlFlow::Break(Stop::IsPast) | ControlFlow::Continue(())) => self.is_ended = true,
            // The value behind the range does not matter.
            Err(failure) if failure.is_of_value() && self.rows.key().is_some_and(|key| range.is_past(key)) => {
                self.is_ended = true;
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

/// Memory of the caller that rows are copied to.
struct Filled<'a> {
    buffer: *mut u8,
    used: usize,
    capacity: usize,
    rows: &'a mut [braid_row],
    count: usize,
    /// Bytes of the row that did not fit.
    needed: usize,
}

impl Filled<'_> {
    /// False if the row does not fit.
    fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        let len = key.len() + value.len();
        if self.capacity - self.used < len {
            self.needed = len;
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

impl braid_scan {
    fn new(rows: Rows, range: Range) -> braid_scan {
        let walk = Walk { rows, range, is_begun: false, is_kept: false, is_ended: false, failure: None };
        braid_scan { walk: Mutex::new(walk) }
    }

    pub(crate) fn of_list(rows: Vec<(Vec<u8>, Vec<u8>)>) -> braid_scan {
        braid_scan::new(Rows::List(rows.into_iter(), None), Range::ALL)
    }

    fn call(&self, work: impl FnOnce(&mut Walk) -> Outcome) -> Outcome {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner).call(work)
    }
}

/// Begins a scan of a range of keys, NULL for all. Its rows are those of the tree at this moment,
/// or of its snapshot or transaction. Of a tree of many values per key, each pair is a row.
///
/// After a failure of one value (`BRAID_MERGE_FAILED`, `BRAID_CORRUPTION`) the scan continues
/// behind it. Every other failure is the result of all later calls: begin another scan.
///
/// In a transaction, all keys from the bound where the scan begins to the last row that a call
/// returned count as read, and after `BRAID_END` the whole range. So does a row that did not fit in
/// a buffer. Later writes of the transaction appear ahead of the position. `braid_scan_next` seeks
/// each row there: `braid_scan_fill` is faster.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_new(
    tree: *const braid_tree,
    range: *const braid_range,
    scan: *mut *mut braid_scan,
) -> i32 {
    // SAFETY: the header's rules.
    unsafe { new_handle(scan, "scan", || Ok(braid_scan::new(Rows::of_tree(handle(tree, "tree")?), range_of(range)?))) }
}

/// Moves to the next row. Its key and value are valid until the next call with the scan; either
/// pointer may be NULL. `BRAID_END` after the last row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_next(scan: *mut braid_scan, key: *mut braid_slice, value: *mut braid_slice) -> i32 {
    // SAFETY: the header's rules.
    run(|| unsafe {
        set(key, braid_slice::NULL);
        set(value, braid_slice::NULL);
        handle(scan, "scan")?.call(|walk| {
            let Some(row) = walk.next()? else { return Ok(BRAID_END) };
            set(key, braid_slice::of(row.0));
            set(value, braid_slice::of(row.1));
            Ok(BRAID_OK)
        })
    })
}

/// Copies the next rows, at most `rows_max` and as far as they fit, to `buffer`, and their places
/// in it to `rows`. `count` takes their number. `BRAID_END` with a count of 0 after the last row;
/// `BRAID_BUFFER_TOO_SMALL` if the next row alone does not fit: then `needed`, which may be NULL,
/// takes its size, and the scan stays before it. A failure behind rows is the result of the next
/// call.
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
        let mut filled = Filled { buffer, used: 0, capacity, rows, count: 0, needed: 0 };
        let code = handle(scan, "scan")?.call(|walk| {
            let outcome = walk.fill(&mut filled);
            set(count, filled.count);
            match outcome {
                Err(failure) if filled.count > 0 => walk.failure = Some(failure),
                outcome => outcome?,
            }
            Ok(if filled.count > 0 || walk.is_kept { BRAID_OK } else { BRAID_END })
        })?;
        if code == BRAID_END || filled.count > 0 {
            return Ok(code);
        }
        set(needed, filled.needed);
        let message = format!("the next row has {} bytes, and the buffer {capacity}", filled.needed);
        Err(Failure { code: BRAID_BUFFER_TOO_SMALL, message })
    })
}

/// Frees a scan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn braid_scan_free(scan: *mut braid_scan) {
    // SAFETY: the header's rules.
    unsafe { free(scan) };
}
