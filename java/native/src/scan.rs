//! Scans of a range. One call of Java copies many rows to its buffer.

use crate::{
    boundary::{Outcome, TOO_SMALL, free, give_handle, handle, native, split, too_short, two},
    codec::Reader,
    errors::Failure,
    place,
    rows::{Rows, Visit},
    tree::TreeCell,
};
use jni::{
    EnvUnowned,
    objects::JClass,
    sys::{jint, jlong},
};
use parking_lot::Mutex;
use std::ops::Bound;

/// Bounds of keys, and a direction.
#[derive(Clone, Debug)]
pub struct Range {
    pub start: Bound<Vec<u8>>,
    pub end: Bound<Vec<u8>>,
    pub is_reverse: bool,
}

pub type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

const PREFIX: u8 = 1;
const START_EXCLUSIVE: u8 = 2;
const END_INCLUSIVE: u8 = 4;
const REVERSE: u8 = 8;

impl Range {
    /// Decodes the range at the start of a buffer: flags, start or prefix, end.
    pub fn decode(buffer: &[u8], len: jint) -> Outcome<Range> {
        let bytes = usize::try_from(len).ok().and_then(|len| buffer.get(..len)).ok_or_else(too_short)?;
        let mut reader = Reader::new(bytes);
        Range::read(&mut reader)
    }

    pub fn read(reader: &mut Reader<'_>) -> Outcome<Range> {
        let flags = reader.byte()?;
        let (start, end) = (reader.maybe_bytes()?, reader.maybe_bytes()?);
        let has = |flag| flags & flag != 0;
        let end = match (start, end) {
            (Some(prefix), _) if has(PREFIX) => after_prefix(prefix),
            (_, None) => Bound::Unbounded,
            (_, Some(end)) if has(END_INCLUSIVE) => Bound::Included(end.to_vec()),
            (_, Some(end)) => Bound::Excluded(end.to_vec()),
        };
        let start = match start {
            None => Bound::Unbounded,
            Some(start) if has(START_EXCLUSIVE) => Bound::Excluded(start.to_vec()),
            Some(start) => Bound::Included(start.to_vec()),
        };
        Ok(Range { start, end, is_reverse: has(REVERSE) })
    }

    pub fn bounds(&self) -> Bounds<'_> {
        (self.start.as_ref().map(Vec::as_slice), self.end.as_ref().map(Vec::as_slice))
    }

    /// Returns true if a scan has passed its last row.
    pub fn is_past(&self, key: &[u8]) -> bool {
        match (self.is_reverse, &self.start, &self.end) {
            (false, _, Bound::Included(end)) => key > end.as_slice(),
            (false, _, Bound::Excluded(end)) => key >= end.as_slice(),
            (true, Bound::Included(start), _) => key < start.as_slice(),
            (true, Bound::Excluded(start), _) => key <= start.as_slice(),
            _ => false,
        }
    }
}

/// Returns the least key after all with this prefix.
fn after_prefix(prefix: &[u8]) -> Bound<Vec<u8>> {
    match prefix.iter().rposition(|&byte| byte < u8::MAX) {
        None => Bound::Unbounded,
        Some(at) => {
            let mut end = prefix[..=at].to_vec();
            end[at] += 1;
            Bound::Excluded(end)
        }
    }
}

/// A scan that has rows left.
struct ScanCell {
    scan: Mutex<Scan>,
}

struct Scan {
    rows: Rows,
    /// Follows the returned rows, and is the result of all later calls.
    failure: Option<Failure>,
}

/// Bytes before the rows, for the handle.
const HEADER: usize = 8;

/// Bytes before a row: lengths of key and value.
const ROW_HEADER: usize = 8;

/// Rows in a buffer of Java: lengths of key and value, key, value.
struct Filled<'a> {
    out: &'a mut [u8],
    used: usize,
    rows_left: usize,
    /// Bytes of a row that did not fit.
    needed: usize,
}

impl Filled<'_> {
    fn push(&mut self, key: &[u8], value: &[u8]) -> Visit {
        let len = ROW_HEADER + key.len() + value.len();
        let Some(place) = self.out.get_mut(self.used..self.used + len) else {
            self.needed = len;
            return Visit::DidNotFit;
        };
        let (lens, bytes) = place.split_at_mut(ROW_HEADER);
        lens[..4].copy_from_slice(&(key.len() as u32).to_le_bytes());
        lens[4..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        let (key_place, value_place) = bytes.split_at_mut(key.len());
        key_place.copy_from_slice(key);
        value_place.copy_from_slice(value);
        self.used += len;
        self.rows_left -= 1;
        if self.rows_left == 0 { Visit::WasLast } else { Visit::More }
    }
}

/// Fills the buffer. Returns the bytes of its rows, doubled, and 1 more if they are the last ones.
fn fill(scan: &mut Scan, rows_max: jint, buffer: &mut [u8]) -> Outcome {
    if let Some(failure) = &scan.failure {
        return Err(failure.clone());
    }
    let rows_left = usize::try_from(rows_max).unwrap_or(0).max(1);
    let out = buffer.get_mut(HEADER..).ok_or_else(too_short)?;
    let mut filled = Filled { out, used: 0, rows_left, needed: 0 };
    let visited = scan.rows.visit(&mut |key, value| filled.push(key, value));
    let (used, needed) = (filled.used, filled.needed);
    let is_ended = match visited {
        Ok(is_ended) => is_ended,
        Err(failure) if used == 0 => return Err(failure),
        Err(failure) => {
            scan.failure = Some(failure);
            false
        }
    };
    if used == 0 && needed > 0 {
        let needed = HEADER + needed;
        if needed > i32::MAX as usize {
            return Err(Failure::argument("a row has more bytes than a Java array holds"));
        }
        *buffer.first_chunk_mut().ok_or_else(too_short)? = (needed as u64).to_le_bytes();
        return Ok(TOO_SMALL);
    }
    Ok((used as jlong) << 1 | jlong::from(is_ended))
}

/// Only keys are wanted: their values are empty.
const KEYS_ONLY: jint = 1;

native! {
    /// Begins a scan and returns its first rows, as [`scan_next`] does. The handle is 0 if no rows
    /// are left. `TOO_SMALL` has a handle too, behind the bytes.
    fn scan_open(tree: jlong, place: jlong, flags: jint, rows_max: jint, range_len: jint) |buffer| {
        let range = Range::decode(buffer, range_len)?;
        let rows = Rows::new(&handle::<TreeCell>(tree)?.tree, place::of(place)?, range, flags & KEYS_ONLY != 0)?;
        begin(rows, rows_max, buffer)
    }
}

native! {
    /// As [`scan_open`], over the values of one key of a tree with many.
    fn scan_values(tree: jlong, place: jlong, rows_max: jint, is_reverse: jint, key_len: jint) |buffer| {
        let (key, _) = split(buffer, key_len)?;
        let tree = handle::<TreeCell>(tree)?.multi()?;
        let rows = Rows::values(tree, place::of(place)?, key.to_vec(), is_reverse != 0)?;
        begin(rows, rows_max, buffer)
    }
}

fn begin(rows: Rows, rows_max: jint, buffer: &mut [u8]) -> Outcome {
    let is_in_transaction = rows.is_in_transaction();
    let mut scan = Scan { rows, failure: None };
    let result = fill(&mut scan, rows_max, buffer)?;
    let cell = || ScanCell { scan: Mutex::new(scan) };
    match result {
        TOO_SMALL => _ = give_handle(buffer.get_mut(HEADER..).ok_or_else(too_short)?, cell())?,
        // A transaction may yet write behind its last row.
        _ if result & 1 == 1 && !is_in_transaction => {
            *buffer.first_chunk_mut().ok_or_else(too_short)? = 0_u64.to_le_bytes()
        }
        _ => _ = give_handle(buffer, cell())?,
    }
    Ok(result)
}

native! {
    /// Copies the next rows to the buffer.
    fn scan_next(scan: jlong, rows_max: jint) |buffer| {
        fill(&mut handle::<ScanCell>(scan)?.scan.lock(), rows_max, buffer)
    }
}

native! {
    /// Continues a scan in a transaction after this row, or at its start if `key_len` is negative,
    /// so that rows which a write has outdated are read again.
    fn scan_seek(scan: jlong, key_len: jint, value_len: jint) |buffer| {
        let row = if key_len < 0 { None } else { Some(two(buffer, key_len, value_len)?) };
        handle::<ScanCell>(scan)?.scan.lock().rows.seek_after(row);
        Ok(0)
    }
}

/// Ends a scan.
#[jni::jni_mangle("io.github.braiddb.Native")]
pub fn scan_free<'local>(_env: EnvUnowned<'local>, _class: JClass<'local>, scan: jlong) {
    free::<ScanCell>(scan);
}
