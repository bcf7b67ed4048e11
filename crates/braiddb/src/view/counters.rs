//! Costs of this thread's reads, in thread-local cells.

use std::cell::Cell;

thread_local! {
    static KEY_COMPARISONS: Cell<u64> = const { Cell::new(0) };
    static SEGMENTS_READ: Cell<u64> = const { Cell::new(0) };
}

#[cfg(test)]
pub fn key_comparisons() -> u64 {
    KEY_COMPARISONS.get()
}

#[cfg(test)]
pub fn segments_read() -> u64 {
    SEGMENTS_READ.get()
}

#[inline(always)]
pub(crate) fn count_key_comparison() {
    KEY_COMPARISONS.with(|count| count.set(count.get().wrapping_add(1)));
}

#[inline(always)]
pub(crate) fn count_segment_read() {
    SEGMENTS_READ.with(|count| count.set(count.get().wrapping_add(1)));
}
