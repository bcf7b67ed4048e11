//! Ranges of keys.

use crate::boundary::{Failure, Outcome, braid_slice, maybe_bytes};
use std::ops::Bound;

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

pub(crate) type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

#[derive(Clone, Debug)]
pub(crate) struct Range {
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
    pub(crate) is_forward: bool,
}

impl Range {
    pub(crate) const ALL: Range = Range { start: Bound::Unbounded, end: Bound::Unbounded, is_forward: true };

    pub(crate) fn bounds(&self) -> KeyBounds<'_> {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }

    /// Whether a scan in the range's direction has passed its last row.
    pub(crate) fn is_past(&self, key: &[u8]) -> bool {
        match (self.is_forward, &self.start, &self.end) {
            (true, _, Bound::Included(end)) => key > end.as_slice(),
            (true, _, Bound::Excluded(end)) => key >= end.as_slice(),
            (false, Bound::Included(start), _) => key < start.as_slice(),
            (false, Bound::Excluded(start), _) => key <= start.as_slice(),
            _ => false,
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
        return Ok(Range::ALL);
    };
    let all = BRAID_START_EXCLUSIVE | BRAID_END_INCLUSIVE | BRAID_PREFIX | BRAID_REVERSE;
    if range.flags & !all != 0 {
        return Err(Failure::argument(format!("the flags {:#x} of the range are unknown", range.flags & !all)));
    }
    let has = |flag| range.flags & flag != 0;
    // SAFETY: the header's rules.
    let (start, end) = unsafe { (maybe_bytes(range.start)?, maybe_bytes(range.end)?) };
    let is_forward = !has(BRAID_REVERSE);
    if has(BRAID_PREFIX) {
        if end.is_some() || has(BRAID_START_EXCLUSIVE) || has(BRAID_END_INCLUSIVE) {
            return Err(Failure::argument("a prefix takes neither an end nor flags of bounds"));
        }
        let prefix = start.unwrap_or_default();
        return Ok(Range { start: Bound::Included(prefix.to_vec()), end: after_prefix(prefix), is_forward });
    }
    let bound = |bytes: Option<&[u8]>, is_included| match bytes {
        None => Bound::Unbounded,
        Some(bytes) if is_included => Bound::Included(bytes.to_vec()),
        Some(bytes) => Bound::Excluded(bytes.to_vec()),
    };
    Ok(Range {
        start: bound(start, !has(BRAID_START_EXCLUSIVE)),
        end: bound(end, has(BRAID_END_INCLUSIVE)),
        is_forward,
    })
}
