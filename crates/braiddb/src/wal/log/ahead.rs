//! Makes and syncs the next segments before the log needs them.
//!
//! A segment's header must be on disk before a seal names it, and a sync takes milliseconds on a
//! busy device, up to a second on a shared one. So a background thread makes the next segment while
//! the current one has room, and more if segments fill quickly. A header stores where its segment
//! begins, which is not known in advance: a segment made ahead begins where the previous one's file
//! ends, and a note of zeros fills the space before the seal.
//!
//! The appender makes a segment itself if none is ready, if the note would be too long, or after a
//! sync. Segments made before a sync are useless: their headers store an earlier sync, and a header
//! alone may reveal damage before it.

use super::{Prepared, Tail, Wal, count, following_len, map};
use crate::{
    base::Result,
    wal::{
        Lsn,
        format::{MAX_TIME_US, SEGMENT_HEADER_LEN, SegmentHeader},
        record::{RECORD_HEADER_LEN_MAX, RECORD_HEADER_LEN_MIN, RecordFlags, RecordHeader, SEAL_LEN_MAX, encode_seal},
        segment::{Segment, Spare},
    },
};
use std::sync::{Arc, atomic::Ordering};

/// Maximum share of a segment for the filling note: 1/16.
const FILLING_PART_MAX: u64 = 16;

/// The next segment is requested once this part of the current one is used.
const ASKED_AT_PART: u64 = 4;

/// Segments are made ahead for this many nanoseconds of writes. Shared devices sync in 0.6 s.
const AHEAD_NS: u64 = 500_000_000;

/// Maximum segments made ahead: recovery scans all of them for records past the log's end.
const AHEAD_SEGMENTS_MAX: u64 = 3;

/// Free bytes at which a segment ends: a note and a seal fit.
pub(super) const FILLING_LEN_MIN: u64 = RECORD_HEADER_LEN_MAX as u64 + SEAL_LEN_MAX;

/// Appended bytes per sync, at most, of a log that is synced often.
const OFTEN_SYNCED_LEN: u64 = 256 << 10;

/// Maximum bytes of a spare filled with zeros. A longer one may be partly wasted, and concurrent
/// syncs wait for the device.
const WRITTEN_LEN_MAX: u64 = 4 << 20;

struct NextSegmentPlan {
    /// Start of the previous segment, whose number may be reused.
    follows: Lsn,
    header: SegmentHeader,
    usual_len: u64,
    /// The log was synced since the current segment began: it will be again before the next one
    /// begins.
    is_synced: bool,
}

enum Filling {
    Nothing,
    Note { payload_len: usize },
}

impl Wal {
    /// Returns true, once a segment, to wake the thread that calls [`Wal::prepare_next`].
    pub fn take_call_for_next(&self) -> bool {
        self.calls_for_next.load(Ordering::Relaxed) && self.calls_for_next.swap(false, Ordering::Relaxed)
    }

    pub(super) fn call_for_next(&self, tail: &mut Tail) {
        if tail.offset >= tail.calls_at {
            tail.calls_at = u64::MAX;
            self.calls_for_next.store(true, Ordering::Relaxed);
        }
    }

    /// Makes a segment ahead if requested, or only a file where the log is synced now and then.
    /// True if it made one: the background thread then calls again.
    pub fn prepare_next(&self) -> Result<bool> {
        self.latch.check()?;
        let NextSegmentPlan { follows, mut header, usual_len, .. } = match self.next_segment_plan() {
            Some(_) if self.options.spares_max == 0 => return Ok(false),
            None => return Ok(false),
            Some(next_segment_plan) if next_segment_plan.is_synced => return self.prepare_spare(),
            Some(next_segment_plan) => next_segment_plan,
        };
        let spare = self.spares.lock().pop();
        let counter = if spare.is_some() { &self.segments_recycled } else { &self.segments_created };
        let spare = match spare {
            Some(spare) => spare,
            None => Spare::create(&self.context, usual_len, false).map_err(|e| self.not_made(e))?,
        };
        (header.number, header.len) = (spare.number, spare.len);
        let next = spare.begin(&self.context, header).map_err(|e| self.not_made(e))?;
        if let Some(mapping) = next.take_mapping().or_else(|| map(&next)) {
            next.keep_mapping(Some(mapping));
        }
        let mut tail = self.tail.lock();
        let last = tail.ahead.back().unwrap_or(&tail.segment).header;
        let fits = last.start_lsn == follows && last.limit_lsn() == next.header.start_lsn;
        if fits && tail.prepared.is_none() {
            tail.ahead.push_back(next);
            self.segments_ahead.store(tail.ahead.len(), Ordering::Relaxed);
            count(counter, 1);
        } else {
            drop(tail);
            self.spares.lock().push(next.to_spare(next.file(), next.header.durable_lsn));
        }
        Ok(true)
    }

    fn next_segment_plan(&self) -> Option<NextSegmentPlan> {
        let tail = self.tail.lock();
        let durable_lsn = self.durable_lsn();
        if tail.calls_at < u64::MAX || tail.prepared.is_some() {
            return None;
        }
        let is_current = |segment: &Arc<Segment>| segment.header.durable_lsn == durable_lsn;
        let wanted = tail.ahead_wanted(self.context.runtime.monotonic_coarse_ns());
        if tail.ahead.len() as u64 >= wanted || !tail.ahead.iter().all(is_current) {
            return None;
        }
        let last = &tail.ahead.back().unwrap_or(&tail.segment).header;
        let start_lsn = last.limit_lsn();
        let header = SegmentHeader {
            file_id: self.context.runtime.random_u64(),
            start_lsn,
            epoch: self.epoch,
            number: 0,
            len: 0,
            previous_end_lsn: start_lsn,
            previous_link: 0,
            previous_epoch: self.epoch,
            durable_lsn,
            previous_sequence: tail.last_sequence,
            base_time_us: self.context.runtime.unix_time_us().min(MAX_TIME_US),
            is_zeroed: false,
        };
        let is_synced = durable_lsn > tail.segment.header.start_lsn + SEGMENT_HEADER_LEN;
        self.is_synced_often.store(tail.is_synced_often(self.sync_stage.syncs()), Ordering::Relaxed);
        let usual_len = match tail.ahead.back() {
            Some(last) => following_len(last.header.len, &self.options),
            None => self.next_len.load(Ordering::Relaxed),
        };
        Some(NextSegmentPlan { follows: last.start_lsn, header, usual_len, is_synced })
    }

    /// Takes the segment made ahead, if it suits a record of up to `len` bytes, and fills the
    /// current one. An unsuitable one becomes a spare.
    pub(super) fn begin_prepared(&self, tail: &mut Tail, len: u64) -> Result<Option<Prepared>> {
        let Some(next) = tail.ahead.front().cloned() else { return Ok(None) };
        let has_room = next.header.len >= SEGMENT_HEADER_LEN + len + SEAL_LEN_MAX;
        let is_current = next.header.durable_lsn == self.durable_lsn();
        let filling = if has_room && is_current { tail.filling(&next.header) } else { None };
        let Some(filling) = filling else {
            self.drop_ahead(tail);
            return Ok(None);
        };
        if let Filling::Note { payload_len } = filling {
            let zeros = vec![0; payload_len];
            let note = tail.marker(RecordFlags::NOTE, &zeros, next.header.durable_lsn);
            self.write_record(tail, &note, &zeros)?;
        }
        tail.ahead.pop_front();
        self.segments_ahead.store(tail.ahead.len(), Ordering::Relaxed);
        let payload = encode_seal(next.header.number, next.header.file_id);
        let seal = tail.marker(RecordFlags::SEAL, &payload, next.header.durable_lsn);
        next.set_last_sequence(tail.last_sequence);
        Ok(Some(Prepared { next, seal }))
    }

    pub(super) fn written_len_max(&self) -> u64 {
        WRITTEN_LEN_MAX.min(self.options.segment_len)
    }

    /// All of them, since each one follows the previous one.
    pub(super) fn drop_ahead(&self, tail: &mut Tail) {
        let mut spares = self.spares.lock();
        spares.extend(tail.ahead.drain(..).map(|next| next.to_spare(next.file(), next.header.durable_lsn)));
        self.segments_ahead.store(0, Ordering::Relaxed);
    }
}

impl Tail {
    pub(super) fn calls_at(segment: &Segment) -> u64 {
        segment.header.len / ASKED_AT_PART
    }

    pub(super) fn written_to(segment: &Segment) -> u64 {
        if segment.is_written { u64::MAX } else { SEGMENT_HEADER_LEN }
    }

    pub(super) fn is_synced_often(&self, syncs: u64) -> bool {
        syncs.saturating_sub(self.began_syncs).saturating_mul(OFTEN_SYNCED_LEN) >= self.offset
    }

    fn ahead_wanted(&self, now_ns: u64) -> u64 {
        let used = self.offset.max(1);
        let took_ns = now_ns.saturating_sub(self.began_ns).max(1);
        let used_in_time = u128::from(used) * u128::from(AHEAD_NS) / u128::from(took_ns);
        let segments = used_in_time.div_ceil(u128::from(self.segment.header.len.max(1)));
        u64::try_from(segments).unwrap_or(u64::MAX).clamp(1, AHEAD_SEGMENTS_MAX)
    }

    /// `None` if the note would be too long, or if no record has the necessary length.
    fn filling(&self, next: &SegmentHeader) -> Option<Filling> {
        let present = &self.segment.header;
        let left = present.len.checked_sub(self.offset).filter(|left| *left <= present.len / FILLING_PART_MAX)?;
        let seal = self.marker(RecordFlags::SEAL, &encode_seal(next.number, next.file_id), next.durable_lsn);
        let ends_there = |len: &u64| seal.encode(present, present.len - len, &mut Vec::new()).file_len() == *len;
        let seal_len = (RECORD_HEADER_LEN_MIN as u64..=SEAL_LEN_MAX.min(left)).find(ends_there)?;
        let note_len = left - seal_len;
        if note_len == 0 {
            return Some(Filling::Nothing);
        }
        let note = self.marker(RecordFlags::NOTE, &[], next.durable_lsn);
        (RECORD_HEADER_LEN_MIN..=RECORD_HEADER_LEN_MAX).find_map(|header_len| {
            let stored_len = u32::try_from(note_len.checked_sub(header_len as u64)?).ok()?;
            let note = RecordHeader { stored_len, raw_len: stored_len, ..note };
            let has_that_len = note.encode(present, self.offset, &mut Vec::new()).header_len == header_len;
            has_that_len.then_some(Filling::Note { payload_len: stored_len as usize })
        })
    }
}
