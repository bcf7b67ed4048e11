//! Keys as tuples.
//!
//! A key is a tuple in the encoding of FoundationDB's tuple layer, whose byte order is the order of
//! the tuples. A key that is no tuple, such as a string, is the tuple of this one element. Records
//! never begin with byte FF: no element does, and index entries have it (`entry.rs`).

use crate::error::{Error, Result};
use foundationdb_tuple::{PackError, PackResult, TupleDepth, TuplePack, TupleUnpack, VersionstampOffset};
use serde::{Deserialize, Serialize};
use std::{
    io,
    ops::{Bound, RangeBounds},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The first byte of index entries and their definitions; no record begins with it.
pub const BEYOND_RECORDS: u8 = 0xff;

/// A key type: packs into a tuple and unpacks from it. Implemented for every type that has
/// [`TuplePack`] and [`TupleUnpack`]; `#[derive(TupleKey)]` implements them for a struct.
///
/// | Rust | element |
/// |---|---|
/// | `u16` to `u128`, `i16` to `i128`, `usize`, `isize` | integer, whatever its width |
/// | `f32`, `f64` | float, double; -0 before 0, NaN last |
/// | `bool` | false, true |
/// | `String` | text, by its UTF-8 bytes |
/// | `Vec<u8>` | bytes |
/// | [`Uuid`](crate::tuple::Uuid) | UUID, by its bytes |
/// | [`Timestamp`] | integer: microseconds since 1970 |
/// | `Option<T>` | null before all values |
/// | tuples, structs, `Vec<T>` | the key itself if outermost, else a nested tuple |
///
/// Elements of different types sort by type: null, bytes, text, tuples, integers, floats, doubles,
/// bools, UUIDs.
pub trait TupleKey: TuplePack + for<'de> TupleUnpack<'de> {}

impl<T: TuplePack + for<'de> TupleUnpack<'de>> TupleKey for T {}

/// A time in a key or value: an integer, microseconds since 1970 in UTC, negative before. Every
/// language reads it as an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl From<SystemTime> for Timestamp {
    /// Rounds down to microseconds. Times beyond the years ±292,000 become the first or last one.
    fn from(time: SystemTime) -> Timestamp {
        Timestamp(match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
            Err(before) => {
                let us = before.duration().as_nanos().div_ceil(1000);
                i64::try_from(us).map_or(i64::MIN, |us| -us)
            }
        })
    }
}

impl Timestamp {
    /// Returns the time; `None` if the system cannot represent it.
    pub fn to_system_time(self) -> Option<SystemTime> {
        let distance = Duration::from_micros(self.0.unsigned_abs());
        if self.0 < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
    }
}

impl TuplePack for Timestamp {
    fn pack<W: io::Write>(&self, output: &mut W, depth: TupleDepth) -> io::Result<VersionstampOffset> {
        self.0.pack(output, depth)
    }
}

impl TupleUnpack<'_> for Timestamp {
    fn unpack(input: &[u8], depth: TupleDepth) -> PackResult<(&[u8], Timestamp)> {
        let (input, us) = i64::unpack(input, depth)?;
        Ok((input, Timestamp(us)))
    }
}

/// Packs a key.
pub fn pack<T: TuplePack + ?Sized>(key: &T) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    key.pack_root(&mut bytes).map_err(|error| Error::Invalid(format!("the key cannot be packed: {error}")))?;
    if bytes.first() == Some(&BEYOND_RECORDS) {
        return Err(Error::Invalid("the key is no tuple: it begins with byte FF".to_owned()));
    }
    Ok(bytes)
}

/// Unpacks a key.
pub fn unpack<T: TupleKey>(bytes: &[u8]) -> std::result::Result<T, PackError> {
    T::unpack_root(bytes)
}

/// Start and end of a range of packed keys.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Packs a range of keys. An open end is the last record.
pub fn bounds<T: TuplePack>(range: &impl RangeBounds<T>) -> Result<Bounds> {
    let pack_bound = |bound: Bound<&T>| {
        Ok::<_, Error>(match bound {
            Bound::Included(key) => Bound::Included(pack(key)?),
            Bound::Excluded(key) => Bound::Excluded(pack(key)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    };
    let end = match pack_bound(range.end_bound())? {
        Bound::Unbounded => Bound::Excluded(vec![BEYOND_RECORDS]),
        end => end,
    };
    Ok((pack_bound(range.start_bound())?, end))
}

/// Returns the range of the tuples that begin with the elements packed in `prefix`.
///
/// The end is not the successor of `prefix`: the text "a" is a prefix of the bytes of "a\0b", but
/// only an escaped zero has byte FF after an element.
pub fn bounds_of_prefix(prefix: Vec<u8>) -> Bounds {
    let end = [&prefix[..], &[BEYOND_RECORDS]].concat();
    (Bound::Included(prefix), Bound::Excluded(end))
}
