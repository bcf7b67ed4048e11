//! Key comparisons of the plain merge, counted as those of views are: in a cell of the thread.

use std::cell::Cell;

thread_local! {
    static KEY_COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

/// How many keys this thread's plain merges have compared so far.
pub(super) fn key_comparisons() -> u64 {
    KEY_COMPARISONS.get()
}

#[inline]
pub(super) fn count_key_comparison() {
    KEY_COMPARISONS.set(KEY_COMPARISONS.get().wrapping_add(1));
}
