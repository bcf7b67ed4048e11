//! The bytes of a sorted view; `docs/internals/format.md` is normative.
//!
//! A view has its own file (`NNN.view`: a file header of 64 bytes, zeros up to byte 4096, then the
//! view), or is a section of a run file at an offset that is a multiple of 4096. It consists of:
//!
//! ```text
//! pages      segment records in pages of 4096 bytes: as many records as fit into 4088 bytes, zeros,
//!            checksum (u64, over the first 4088 bytes, the file's id and the page's offset)
//! directory  length (varint) and bytes of the prefix shared by all separators but the first; then
//!            for each segment a byte: entry count 1..=32, plus 0x80 for a continuation segment;
//!            if it is neither a continuation nor the first, also the length (varint) and bytes of
//!            its separator without the prefix
//! footer     96 bytes:
//!    0..8    magic "BRAIDVFT"
//!    8..16   entries
//!    16..20  segments (u32)
//!    20..24  number of runs (u32)
//!    24..32  stale entries
//!    32..40  tombstones that are not stale
//!    40..48  the highest sequence number of any of the runs' entries and range tombstones
//!    48..56  length of the directory
//!    56..64  checksum of the directory, with the file's id and the directory's file offset
//!    64..88  zero
//!    88..96  checksum of bytes 0..88, with the file's id and the footer's file offset
//! ```
//!
//! A **lane** is the index of an entry in its segment, 0 to 31.
//!
//! Entries are ordered by key, versions of a key by sequence number, newest first. The first
//! segment has the empty separator. Each later separator is greater than every key before its
//! segment, and not greater than any key in or after it. A segment that continues the versions of
//! the previous segment's last key is a **continuation**: it holds nothing else and has no
//! separator, so searches end at the segment before.
//!
//! A **segment record** has 128 bytes for up to 8 runs, 192 for up to 24, 256 for up to 31:
//!
//! | bytes | field |
//! |---|---|
//! | 0..32 | selectors: run (0x1f), resolve 0x20, tombstone 0x40, stale 0x80; 0xff after the last entry |
//! | 32 | base byte b; 255: differences are unknown, search by bisection |
//! | 33..64 | differences of entries 1 to 31: first bit that differs from the previous key, minus 8b (0 to 254); 255: same key. If b = 255: any number but 255 for another key |
//! | 64..96 | tags: the low byte of the key's hash |
//! | 96.. | cursors: for each run, block (u16) and slot (u16) of its first entry in this segment or after it |
//!
//! An entry is **stale** if it is an older version of the previous entry's key, or a newer range
//! tombstone of any of the view's runs covers it. A reader may skip it unread if its snapshot is at
//! or above the view's highest sequence number.

use super::simd::{Lanes, match_lanes};
use crate::base::{EntryKind, FileId, FileNumber, SequenceNumber, limits};
use crate::codec::{ByteReader, checksum, put_varint};
use crate::table::Position;

/// Unit of reading, caching and checksums.
pub(crate) const PAGE_BYTES: usize = 4096;
pub(crate) const PAGE_PAYLOAD: usize = PAGE_BYTES - 8;
/// Offset of the view in a view file.
pub(crate) const VIEW_FILE_START: u64 = 4096;
pub(crate) const FOOTER_BYTES: usize = 96;
const FOOTER_MAGIC: &[u8; 8] = b"BRAIDVFT";

pub(crate) const SEGMENT_LANES: usize = limits::SEGMENT_ENTRIES;
pub(crate) const SELECTOR_RUN: u8 = 0x1f;
/// Selector flag: the entry's bytes alone do not give the value.
pub(crate) const SELECTOR_RESOLVE: u8 = 0x20;
pub(crate) const SELECTOR_TOMBSTONE: u8 = 0x40;
/// Selector flag: an older version, or covered by a range tombstone.
pub(crate) const SELECTOR_STALE: u8 = 0x80;
pub(crate) const SELECTOR_EMPTY: u8 = 0xff;

/// Difference: same key as the previous entry.
pub(crate) const SAME_KEY: u8 = 255;
pub(crate) const MAX_DIFFERENCE: u32 = 254;
/// Base byte: differences are unknown, search by bisection.
pub(crate) const BASE_BISECT: u8 = 255;

const DIFFERENCES_AT: usize = 32;
const TAGS_AT: usize = 64;
const CURSORS_AT: usize = 96;
pub(crate) const MAX_RECORD_BYTES: usize = 256;

pub(crate) const FLAG_COUNT: u8 = 0x3f;
pub(crate) const FLAG_CONTINUATION: u8 = 0x80;

const _: () = assert!(SEGMENT_LANES == 32);
const _: () = assert!(CURSORS_AT + 4 * limits::MAX_VIEW_RUNS <= MAX_RECORD_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) run_count: usize,
    pub(crate) record_bytes: usize,
    pub(crate) records_per_page: usize,
}

impl Layout {
    pub(crate) fn new(run_count: usize) -> Option<Layout> {
        let record_bytes = match run_count {
            1..=8 => 128,
            9..=24 => 192,
            25..=limits::MAX_VIEW_RUNS => 256,
            _ => return None,
        };
        Some(Layout { run_count, record_bytes, records_per_page: PAGE_PAYLOAD / record_bytes })
    }

    pub(crate) fn pages(self, segments: u32) -> u32 {
        segments.div_ceil(self.records_per_page as u32)
    }

    #[inline]
    pub(crate) fn place(self, segment: u32) -> (u32, usize) {
        let per_page = self.records_per_page as u32;
        let page = match per_page {
            31 => segment / 31,
            21 => segment / 21,
            _ => segment / 15,
        };
        (page, (segment - page * per_page) as usize * self.record_bytes)
    }
}

/// Description of a view in the manifest or in a run's footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewMeta {
    /// File number; 0 for a view inside a run file.
    pub number: FileNumber,
    pub file_id: FileId,
    pub file_bytes: u64,
    pub entries: u64,
    pub segments: u32,
    /// Older versions, and entries covered by range tombstones.
    pub stale: u64,
    pub tombstones: u64,
    /// Highest sequence number of its runs' entries and range tombstones.
    pub max_sequence: SequenceNumber,
    pub run_count: u8,
}

impl ViewMeta {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.number);
        out.extend_from_slice(&self.file_id.to_le_bytes());
        let segments = u64::from(self.segments);
        for number in [self.file_bytes, self.entries, segments, self.stale, self.tombstones, self.max_sequence] {
            put_varint(out, number);
        }
        out.push(self.run_count);
    }

    pub fn decode(reader: &mut ByteReader<'_>) -> Option<ViewMeta> {
        Some(ViewMeta {
            number: reader.varint()?,
            file_id: reader.u64()?,
            file_bytes: reader.varint()?,
            entries: reader.varint()?,
            segments: u32::try_from(reader.varint()?).ok()?,
            stale: reader.varint()?,
            tombstones: reader.varint()?,
            max_sequence: reader.varint()?,
            run_count: reader.u8()?,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) entries: u64,
    pub(crate) segments: u32,
    pub(crate) run_count: u32,
    pub(crate) stale: u64,
    pub(crate) tombstones: u64,
    pub(crate) max_sequence: SequenceNumber,
    pub(crate) directory_bytes: u64,
    pub(crate) directory_checksum: u64,
}

impl Footer {
    pub(crate) fn encode(&self, file_id: FileId, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(FOOTER_MAGIC);
        out.extend_from_slice(&self.entries.to_le_bytes());
        out.extend_from_slice(&self.segments.to_le_bytes());
        out.extend_from_slice(&self.run_count.to_le_bytes());
        for number in [self.stale, self.tombstones, self.max_sequence, self.directory_bytes, self.directory_checksum] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.resize(FOOTER_BYTES - 8, 0);
        out.extend_from_slice(&checksum(file_id, offset, &out).to_le_bytes());
        let mut bytes = [0; FOOTER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], file_id: FileId, offset: u64) -> Option<Footer> {
        let (body, sum) = bytes.split_at(FOOTER_BYTES - 8);
        let mut reader = ByteReader::new(body);
        if reader.take(8)? != FOOTER_MAGIC || sum != checksum(file_id, offset, body).to_le_bytes() {
            return None;
        }
        Some(Footer {
            entries: reader.u64()?,
            segments: reader.u32()?,
            run_count: reader.u32()?,
            stale: reader.u64()?,
            tombstones: reader.u64()?,
            max_sequence: reader.u64()?,
            directory_bytes: reader.u64()?,
            directory_checksum: reader.u64()?,
        })
    }
}

pub(crate) fn seal_page(page: &mut [u8], file_id: FileId, offset: u64) {
    let (payload, sum) = page.split_at_mut(PAGE_PAYLOAD);
    sum.copy_from_slice(&checksum(file_id, offset, payload).to_le_bytes());
}

pub(crate) fn page_is_sound(page: &[u8], file_id: FileId, offset: u64) -> bool {
    page.len() == PAGE_BYTES && page[PAGE_PAYLOAD..] == checksum(file_id, offset, &page[..PAGE_PAYLOAD]).to_le_bytes()
}

#[inline]
pub(crate) fn tag(key: &[u8]) -> u8 {
    tag_of_hash(crate::codec::hash64(key))
}

#[inline]
pub(crate) fn tag_of_hash(hash: u64) -> u8 {
    hash as u8
}

pub(crate) fn selector(run: u8, kind: EntryKind, stale: bool) -> u8 {
    let mut selector = run;
    if kind.needs_resolving() {
        selector |= SELECTOR_RESOLVE;
    }
    if kind == EntryKind::Tombstone {
        selector |= SELECTOR_TOMBSTONE;
    }
    if stale {
        selector |= SELECTOR_STALE;
    }
    selector
}

/// A borrowed record. Only its entry count is checked; users check runs and positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    selectors: &'a Lanes,
    differences: &'a Lanes,
    tags: &'a Lanes,
    cursors: &'a [u8],
    count: usize,
}

impl<'a> Segment<'a> {
    #[inline(always)]
    pub(crate) fn new(record: &'a [u8], count: usize, run_count: usize) -> Option<Segment<'a>> {
        let (selectors, rest) = record.split_first_chunk::<32>()?;
        let (differences, rest) = rest.split_first_chunk::<32>()?;
        let (tags, rest) = rest.split_first_chunk::<32>()?;
        let cursors = rest.get(..4 * run_count)?;
        let segment = Segment { selectors, differences, tags, cursors, count };
        (match_lanes(selectors, 0xff, SELECTOR_EMPTY) == !lanes_below(count)).then_some(segment)
    }

    /// Parses a copy of a record that [`Segment::new`] accepted, with the same arguments.
    #[inline(always)]
    pub(crate) fn of_copy(record: &'a [u8; MAX_RECORD_BYTES], count: usize, run_count: usize) -> Segment<'a> {
        debug_assert!(count <= SEGMENT_LANES && run_count <= limits::MAX_VIEW_RUNS);
        let lanes_at = |at: usize| match record[at..].first_chunk() {
            Some(lanes) => lanes,
            None => unreachable!("a record has room for all lanes"),
        };
        let cursors = &record[CURSORS_AT..(CURSORS_AT + 4 * run_count).min(MAX_RECORD_BYTES)];
        let [selectors, differences, tags] = [0, DIFFERENCES_AT, TAGS_AT].map(lanes_at);
        Segment { selectors, differences, tags, cursors, count }
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> u8 {
        self.differences[0]
    }

    /// Entry 0 has the base byte instead.
    #[inline(always)]
    pub(crate) fn differences(&self) -> &'a Lanes {
        self.differences
    }

    #[inline(always)]
    pub(crate) fn selector(&self, lane: usize) -> u8 {
        self.selectors[lane]
    }

    #[inline(always)]
    pub(crate) fn tag(&self, lane: usize) -> u8 {
        self.tags[lane]
    }

    #[inline(always)]
    pub(crate) fn run(&self, lane: usize) -> usize {
        usize::from(self.selectors[lane] & SELECTOR_RUN)
    }

    #[inline(always)]
    pub(crate) fn tagged(&self, tag: u8) -> u32 {
        match_lanes(self.tags, 0xff, tag) & lanes_below(self.count)
    }

    /// Returns the entries with another version of the previous key, never entry 0: the directory
    /// marks it.
    #[inline(always)]
    pub(crate) fn same_key(&self) -> u32 {
        match_lanes(self.differences, 0xff, SAME_KEY) & lanes_below(self.count) & !1
    }

    #[inline(always)]
    pub(crate) fn unmarked(&self, marks: u8) -> u32 {
        match_lanes(self.selectors, marks, 0) & lanes_below(self.count)
    }

    #[inline(always)]
    pub(crate) fn lanes_of_run(&self, run: usize) -> u32 {
        match_lanes(self.selectors, SELECTOR_RUN, run as u8) & lanes_below(self.count)
    }

    /// Returns a run's first position in or after the segment; `None` if the view has no such run.
    #[inline(always)]
    pub(crate) fn cursor(&self, run: usize) -> Option<Position> {
        let [block_low, block_high, slot_low, slot_high] = *self.cursors.get(4 * run..)?.first_chunk::<4>()?;
        Some(Position {
            block: u16::from_le_bytes([block_low, block_high]),
            slot: u16::from_le_bytes([slot_low, slot_high]),
        })
    }
}

#[inline(always)]
pub(crate) fn lanes_below(count: usize) -> u32 {
    if count >= 32 { u32::MAX } else { (1 << count) - 1 }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) selector: u8,
    pub(crate) tag: u8,
    pub(crate) difference: Difference,
    pub(crate) position: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Same,
    Bit(u32),
    /// Only trailing zero bytes differ, there is no previous key, or the difference is unknown.
    Untold,
}

pub(crate) fn encode_record(record: &mut [u8], lanes: &[Lane], cursors: &[Position]) {
    assert!(!lanes.is_empty() && lanes.len() <= SEGMENT_LANES);
    record.fill(0);
    record[..SEGMENT_LANES].fill(SELECTOR_EMPTY);
    record[33..TAGS_AT].fill(SAME_KEY);
    let base = base_of(&lanes[1..]);
    record[32] = base;
    for (i, lane) in lanes.iter().enumerate() {
        debug_assert!(usize::from(lane.selector & SELECTOR_RUN) < cursors.len());
        record[i] = lane.selector;
        record[TAGS_AT + i] = lane.tag;
        if i > 0 {
            record[32 + i] = match lane.difference {
                Difference::Same => SAME_KEY,
                Difference::Bit(bit) if base != BASE_BISECT => (bit - 8 * u32::from(base)) as u8,
                _ => 0,
            };
        }
    }
    for (run, cursor) in cursors.iter().enumerate() {
        let at = CURSORS_AT + 4 * run;
        record[at..at + 2].copy_from_slice(&cursor.block.to_le_bytes());
        record[at + 2..at + 4].copy_from_slice(&cursor.slot.to_le_bytes());
    }
}

fn base_of(lanes: &[Lane]) -> u8 {
    let (mut least, mut most) = (u32::MAX, 0);
    for lane in lanes {
        match lane.difference {
            Difference::Same => {}
            Difference::Untold => return BASE_BISECT,
            Difference::Bit(bit) => {
                least = least.min(bit);
                most = most.max(bit);
            }
        }
    }
    if least == u32::MAX {
        return 0;
    }
    let base = least / 8;
    if base >= u32::from(BASE_BISECT) || most - 8 * base > MAX_DIFFERENCE {
        return BASE_BISECT;
    }
    base as u8
}
