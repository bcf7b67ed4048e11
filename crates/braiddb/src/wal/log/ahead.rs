//! The next segments, made and synced before the log needs them.
//!
//! A segment's header must be on disk before a seal names it, and a sync takes milliseconds where the device is busy, or most of a second
//! where it is much shared. So a background thread makes the next segment while there is room in the present one, and the ones after
//! that where segments are filled quickly. A header tells where its segment begins,
//! which nobody knows beforehand; so it begins where the file of the one before it ends, and a note of zeros fills what is left
//! before the seal.
//!
//! The appender makes a segment of its own where none is there in time, where much would have to be filled, and where
//! the log was synced meanwhile: a segment's header tells how far it was synced when the segment begins, and that alone
//! may tell damage to what stands before it. Those that were made beforehand are of no use then.

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

/// No more than this part of a segment is filled.
const FILLING_PART_MAX: u64 = 16;

/// The next segment is asked for when this part of one is used.
const ASKED_AT_PART: u64 = 4;

/// The log is made ready for what is written in so long. A sync was seen to take 0.6 s where others had the device.
const AHEAD_NS: u64 = 500_000_000;

/// But for no more than so many segments: recovery looks through all of them for what may stand past the log's end.
const AHEAD_SEGMENTS_MAX: u64 = 3;

/// How much is left of a segment after which another is made, so that a note and a seal surely fit.
pub(super) const FILLING_LEN_MIN: u64 = RECORD_HEADER_LEN_MAX as u64 + SEAL_LEN_MAX;

/// A log is synced often where it is each time that so many bytes were appended, or more often.
const OFTEN_SYNCED_LEN: u64 = 256 << 10;

/// A spare that is written to is no longer than this, if others may be: it may be that less of it is needed, and who syncs meanwhile
/// waits for the device.
const WRITTEN_LEN_MAX: u64 = 4 << 20;

/// What a segment made beforehand goes by.
struct Outlook {
    /// Where the segment before it begins. (Its number may come back: files are used again.)
    follows: Lsn,
    header: SegmentHeader,
    usual_len: u64,
    /// Whether the log was synced since the present segment began: then it will have been synced again before the next begins.
    is_synced: bool,
}

/// What stands before the seal of a segment that is followed by one made beforehand.
enum Filling {
    Nothing,
    /// A note with so many zeros.
    Note {
        payload_len: usize,
    },
}

impl Wal {
    /// Whether somebody is to be told that [`Wal::prepare_next`] has work to do; once a segment.
    pub fn take_call_for_next(&self) -> bool {
        self.calls_for_next.load(Ordering::Relaxed) && self.calls_for_next.swap(false, Ordering::Relaxed)
    }

    /// Calls for the next segment once enough of the present one is used.
    pub(super) fn call_for_next(&self, tail: &mut Tail) {
        if tail.offset >= tail.calls_at {
            tail.calls_at = u64::MAX;
            self.calls_for_next.store(true, Ordering::Relaxed);
        }
    }

    /// Makes a segment ahead of need, if it was called for, so that a full one costs the appender no sync. Where the
    /// log is synced now and then, a file for it is made and no more. For a background thread, which is to call again as long as
    /// something was made: returns whether.
    pub fn prepare_next(&self) -> Result<bool> {
        self.latch.check()?;
        let Outlook { follows, mut header, usual_len, .. } = match self.outlook() {
            Some(_) if self.options.spares_max == 0 => return Ok(false),
            None => return Ok(false),
            Some(outlook) if outlook.is_synced => return self.prepare_spare(),
            Some(outlook) => outlook,
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

    /// What the next segment to be made would be; `None` if none is called for.
    fn outlook(&self) -> Option<Outlook> {
        let tail = self.tail.lock();
        let durable_lsn = self.durable_lsn();
        if tail.calls_at < u64::MAX || tail.prepared.is_some() {
            return None;
        }
        // What was made before the log was synced will be made once more.
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
        Some(Outlook { follows: last.start_lsn, header, usual_len, is_synced })
    }

    /// The segment made beforehand, if it will do for a record of up to `len` bytes, and the seal that leads to it: the rest
    /// of the present segment is filled. One that will not do becomes a spare.
    pub(super) fn go_on_ahead(&self, tail: &mut Tail, len: u64) -> Result<Option<Prepared>> {
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

    /// How long a spare is at most that is written to.
    pub(super) fn written_len_max(&self) -> u64 {
        WRITTEN_LEN_MAX.min(self.options.segment_len)
    }

    /// Gives up the segments made beforehand, if there are any: each follows the one before.
    pub(super) fn drop_ahead(&self, tail: &mut Tail) {
        let mut spares = self.spares.lock();
        spares.extend(tail.ahead.drain(..).map(|next| next.to_spare(next.file(), next.header.durable_lsn)));
        self.segments_ahead.store(0, Ordering::Relaxed);
    }
}

impl Tail {
    /// When the next segment is asked for.
    pub(super) fn calls_at(segment: &Segment) -> u64 {
        segment.header.len / ASKED_AT_PART
    }

    /// From which offset on a segment may never have been written to.
    pub(super) fn written_to(segment: &Segment) -> u64 {
        if segment.is_written { u64::MAX } else { SEGMENT_HEADER_LEN }
    }

    /// Whether there were many syncs for the bytes in the present segment.
    pub(super) fn is_synced_often(&self, syncs: u64) -> bool {
        syncs.saturating_sub(self.began_syncs).saturating_mul(OFTEN_SYNCED_LEN) >= self.offset
    }

    /// How many segments are to be there ahead, by how quickly the present one was used so far.
    fn ahead_wanted(&self, now_ns: u64) -> u64 {
        let used = self.offset.max(1);
        let took_ns = now_ns.saturating_sub(self.began_ns).max(1);
        let used_in_time = u128::from(used) * u128::from(AHEAD_NS) / u128::from(took_ns);
        let segments = used_in_time.div_ceil(u128::from(self.segment.header.len.max(1)));
        u64::try_from(segments).unwrap_or(u64::MAX).clamp(1, AHEAD_SEGMENTS_MAX)
    }

    /// What must stand before the seal for it to end where the segment's file does; `None` if that is too much, or if there
    /// happen to be no records of such a length.
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
