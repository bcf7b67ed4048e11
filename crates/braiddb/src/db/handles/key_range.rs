//! Ranges of keys, as callers write them.

use crate::{base::Result, db::engine::key::check_key};
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

mod sealed {
    pub trait Sealed {}
}

/// A range of keys or values: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b` or a pair of
/// [`Bound`]s, of anything that is bytes.
///
/// Rust requires one type on both sides of `..`. So write byte strings of different lengths as
/// slices (`&b"a"[..]..&b"bb"[..]`) or as text (`"a".."bb"`).
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use std::ops::Bound::{Excluded, Unbounded};
///
/// let db = braiddb::Db::in_memory()?;
/// let albums = db.tree("albums")?;
/// for id in 0..100_u32 {
///     albums.put(id.to_be_bytes(), "Ten")?;
/// }
/// assert_eq!(albums.range(..).count(), 100);
/// assert_eq!(albums.range(20_u32.to_be_bytes()..30_u32.to_be_bytes()).count(), 10);
/// assert_eq!(albums.count((Excluded(97_u32.to_be_bytes()), Unbounded))?, 2);
/// # Ok(())
/// # }
/// ```
pub trait KeyRange: sealed::Sealed {
    /// Returns where the range begins.
    fn first(&self) -> Bound<&[u8]>;

    /// Returns where the range ends.
    fn last(&self) -> Bound<&[u8]>;
}

macro_rules! key_range {
    ($kind:ty, |$first:pat_param| $first_bound:expr, |$last:pat_param| $last_bound:expr) => {
        impl<K: AsRef<[u8]>> sealed::Sealed for $kind {}

        impl<K: AsRef<[u8]>> KeyRange for $kind {
            #[inline]
            fn first(&self) -> Bound<&[u8]> {
                let $first = self;
                $first_bound
            }

            #[inline]
            fn last(&self) -> Bound<&[u8]> {
                let $last = self;
                $last_bound
            }
        }
    };
}

key_range!(Range<K>, |it| Bound::Included(it.start.as_ref()), |it| Bound::Excluded(it.end.as_ref()));
key_range!(RangeInclusive<K>, |it| Bound::Included(it.start().as_ref()), |it| Bound::Included(it.end().as_ref()));
key_range!(RangeFrom<K>, |it| Bound::Included(it.start.as_ref()), |_| Bound::Unbounded);
key_range!(RangeTo<K>, |_| Bound::Unbounded, |it| Bound::Excluded(it.end.as_ref()));
key_range!(RangeToInclusive<K>, |_| Bound::Unbounded, |it| Bound::Included(it.end.as_ref()));

impl sealed::Sealed for RangeFull {}

impl KeyRange for RangeFull {
    #[inline]
    fn first(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }

    #[inline]
    fn last(&self) -> Bound<&[u8]> {
        Bound::Unbounded
    }
}

fn borrowed<K: AsRef<[u8]>>(bound: &Bound<K>) -> Bound<&[u8]> {
    bound.as_ref().map(AsRef::as_ref)
}

impl<K: AsRef<[u8]>> sealed::Sealed for (Bound<K>, Bound<K>) {}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    #[inline]
    fn first(&self) -> Bound<&[u8]> {
        borrowed(&self.0)
    }

    #[inline]
    fn last(&self) -> Bound<&[u8]> {
        borrowed(&self.1)
    }
}

impl<R: KeyRange> sealed::Sealed for &R {}

impl<R: KeyRange> KeyRange for &R {
    #[inline]
    fn first(&self) -> Bound<&[u8]> {
        (**self).first()
    }

    #[inline]
    fn last(&self) -> Bound<&[u8]> {
        (**self).last()
    }
}

/// Fails if a bound is no valid key.
pub(in crate::db) fn check_bounds(range: &impl KeyRange) -> Result<()> {
    for bound in [range.first(), range.last()] {
        if let Bound::Included(key) | Bound::Excluded(key) = bound {
            check_key(key)?;
        }
    }
    Ok(())
}
