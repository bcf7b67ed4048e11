//! Huge pages, where the system has no such advice.

/// Asks for huge pages: nothing is done here.
pub fn advise_huge_pages(_memory: *mut u8, _len: usize) {}
