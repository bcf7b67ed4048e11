//! Begins the next segment of the log: makes its file, and seals the segment before it.

use super::{Prepared, Tail, Wal, count, map};
use crate::{
    base::{Error, Result},
    wal::{
        context::{WalContext, WalOptions},
        format::{MAX_TIME_US, SEGMENT_HEADER_LEN, SegmentHeader},
        record::{RecordFlags, SEAL_LEN_MAX, encode_seal},
        segment::{MakeError, Spare},
    },
};
use std::sync::atomic::Ordering;

/// Bytes of the first segment on a nearly full disk.
const SHORT_SEGMENT_LEN: u64 = 64 << 10;

/// Bytes of the first segment, and of the first one after an idle time. Each later segment is twice
/// as long, up to the length in the options.
const FIRST_SEGMENT_LEN: u64 = 1 << 20;

const LONG_SEGMENT_UNIT: u64 = 4096;

impl Wal {
    /// Continues an idle, flushed log in a short segment, so that a longer one can be released.
    /// False if the segment is short already.
    pub fn begin_short_segment(&self) -> Result<bool> {
        let short = FIRST_SEGMENT_LEN.min(self.options.segment_len);
        let mut tail = self.tail.lock();
        self.latch.check()?;
        if tail.segment.header.len <= short {
            return Ok(false);
        }
        self.next_len.store(short, Ordering::Relaxed);
        self.drop_ahead(&mut tail);
        self.begin_next_segment(&mut tail, 0)?;
        Ok(true)
    }

    /// Ends the current segment unless it is empty: all earlier records are then in finished
    /// segments.
    pub fn begin_segment(&self) -> Result<()> {
        let mut tail = self.tail.lock();
        self.latch.check()?;
        if tail.offset > SEGMENT_HEADER_LEN {
            self.drop_ahead(&mut tail);
            self.begin_next_segment(&mut tail, 0)?;
        }
        Ok(())
    }

    pub(super) fn begin_next_segment(&self, tail: &mut Tail, len: u64) -> Result<()> {
        let Prepared { next, seal } = match &tail.prepared {
            Some(prepared) => prepared.clone(),
            None => {
                let next = self.begin_prepared(tail, len)?;
                let next = next.map_or_else(|| self.next_segment(tail, len), Ok)?;
                tail.prepared.insert(next).clone()
            }
        };
        let end = self.write_record(tail, &seal, &encode_seal(next.header.number, next.header.file_id))?;
        assert_eq!(end, next.header.start_lsn, "a segment begins where the seal before it ends");
        tail.prepared = None;
        self.next_len.store(following_len(next.header.len, &self.options), Ordering::Relaxed);
        tail.segment.close(end);
        let syncs = self.sync_stage.syncs();
        self.is_synced_often.store(tail.is_synced_often(syncs), Ordering::Relaxed);
        tail.began_syncs = syncs;
        tail.written_to = Tail::written_to(&next);
        tail.offset = SEGMENT_HEADER_LEN;
        tail.link = next.first_link;
        let mapping = next.take_mapping().or_else(|| map(&next));
        tail.segment.keep_mapping(std::mem::replace(&mut tail.mapping, mapping));
        tail.segment = next.clone();
        tail.calls_at = Tail::calls_at(&next);
        tail.began_ns = self.context.runtime.monotonic_coarse_ns();
        self.segments.lock().push_back(next);
        Ok(())
    }

    fn next_segment(&self, tail: &Tail, len: u64) -> Result<Prepared> {
        let needed = SEGMENT_HEADER_LEN + len + SEAL_LEN_MAX;
        let spare = {
            let mut spares = self.spares.lock();
            spares.iter().position(|spare| spare.len >= needed).map(|at| spares.swap_remove(at))
        };
        let counter = if spare.is_some() { &self.segments_recycled } else { &self.segments_created };
        let spare = match spare {
            Some(spare) => spare,
            None => {
                let usual = self.next_len.load(Ordering::Relaxed);
                let len = if needed <= usual { usual } else { needed.next_multiple_of(LONG_SEGMENT_UNIT) };
                let made = Spare::create(&self.context, len, false).map_err(|e| self.not_made(e));
                made.inspect_err(|e| {
                    if e.is_disk_full() {
                        self.next_len.store(SHORT_SEGMENT_LEN.min(self.options.segment_len), Ordering::Relaxed);
                    }
                })?
            }
        };
        let (file_id, durable_lsn) = (self.context.runtime.random_u64(), self.durable_lsn());
        let seal = tail.marker(RecordFlags::SEAL, &encode_seal(spare.number, file_id), durable_lsn);
        let seal_len = seal.encode(&tail.segment.header, tail.offset, &mut Vec::new()).file_len();
        let start_lsn = tail.segment.header.start_lsn + tail.offset + seal_len;
        let header = SegmentHeader {
            file_id,
            start_lsn,
            epoch: self.epoch,
            number: spare.number,
            len: spare.len,
            previous_end_lsn: start_lsn,
            previous_link: 0,
            previous_epoch: self.epoch,
            durable_lsn,
            previous_sequence: tail.last_sequence,
            base_time_us: self.context.runtime.unix_time_us().min(MAX_TIME_US),
            is_zeroed: false,
        };
        let next = spare.begin(&self.context, header).map_err(|e| self.not_made(e))?;
        counter.fetch_add(1, Ordering::Relaxed);
        count(&self.bytes_written, SEGMENT_HEADER_LEN);
        Ok(Prepared { next, seal })
    }

    pub(super) fn not_made(&self, failure: MakeError) -> Error {
        if failure.sync_failed || !failure.error.is_disk_full() {
            self.latch.set(format!("a log segment could not be made: {}", failure.error));
        }
        failure.error
    }
}

/// Short on a nearly full disk: even deletes need a log.
pub(super) fn first_segment(context: &WalContext, options: &WalOptions) -> Result<Spare> {
    let len = FIRST_SEGMENT_LEN.min(options.segment_len);
    let made = Spare::create(context, len, false);
    let is_disk_full = made.as_ref().is_err_and(|e| e.error.is_disk_full() && !e.sync_failed);
    if is_disk_full && len > SHORT_SEGMENT_LEN {
        return Spare::create(context, SHORT_SEGMENT_LEN, false).map_err(|e| e.error);
    }
    made.map_err(|e| e.error)
}

pub(super) fn following_len(len: u64, options: &WalOptions) -> u64 {
    len.saturating_mul(2).clamp(FIRST_SEGMENT_LEN.min(options.segment_len), options.segment_len)
}
