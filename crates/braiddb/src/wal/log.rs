//! The writer's side of the log.

mod ahead;
mod next_segment;
mod release;

use self::{
    ahead::FILLING_LEN_MIN,
    next_segment::{first_segment, following_len},
};
use super::{
    context::{WalContext, WalOptions, WalStats},
    format::{Epoch, Link, Lsn, MAX_TIME_US, SEGMENT_HEADER_LEN, SegmentHeader},
    reader::{LogReader, SegmentSource},
    record::{CLEAN_CLOSE, RECORD_HEADER_LEN_MAX, RecordFlags, RecordHeader, SEAL_LEN_MAX, payload_checksum},
    retention::{Pin, Retained, RetentionLimit},
    segment::{Segment, SegmentInfo, Spare, WalStart},
    sync::{Latch, SyncStage},
};
use crate::{
    base::{Error, MAX_SEQUENCE, Result, SequenceNumber},
    codec::{Compression, compress},
    platform::WriteMapping,
};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// Minimum payload bytes that are written by a system call even if the segment is mapped: a mapped
/// page costs a page fault, and after a sync another one and an interrupt on each processor of this
/// program. So the first record after a sync is written by a call too. (A killed process may leave
/// a short one torn, as a power failure may anyway.)
const CALL_BYTES_MIN: usize = 8 << 10;

/// A synced log that continues in new blocks writes zeros up to the next multiple of this: the
/// first sync of a new block also writes the file's metadata.
const ZEROED_UNIT: u64 = 64 << 10;

/// Maximum bytes of a buffer that is kept after a large group.
const BUFFER_LEN_KEPT: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    pub first_sequence: SequenceNumber,
    pub last_sequence: SequenceNumber,
    pub commit_time_us: u64,
}

/// A log that takes appends.
///
/// **Threads.** Any thread may call any function. `append` is meant for one leader at a time and
/// serialises other callers. `sync` and `append` never wait for each other: the appender publishes
/// `end_lsn` (release) once the operating system has the record. A sync loads that position, then
/// flushes every segment that is not fully durable, oldest first. So no record becomes durable
/// before an earlier one.
///
/// **No buffering**: once `append` returns, a killed process loses nothing of the record.
///
/// **Failures.** After a full disk, the record's header is zeroed and the next append writes at the
/// same place. (A write that fails for lack of space must stay incomplete.) Any other failed write
/// to a segment in use, and any failed sync, latches the log for good: later appends, and syncs of
/// positions that are not durable, fail without a retry.
///
/// **Lock order**: `tail`, `segments`, `retained`; or `tail`, `spares`. Only `tail` is held during
/// I/O.
#[derive(Debug)]
pub struct Wal {
    context: WalContext,
    options: WalOptions,
    epoch: Epoch,
    tail: Mutex<Tail>,
    end_lsn: AtomicU64,
    sync_stage: SyncStage,
    latch: Latch,
    segments: Mutex<VecDeque<Arc<Segment>>>,
    retained: Mutex<Retained>,
    spares: Mutex<Vec<Spare>>,
    /// Written under `tail`.
    segments_ahead: AtomicUsize,
    tidied_at_syncs: AtomicU64,
    next_len: AtomicU64,
    is_synced_often: AtomicBool,
    calls_for_next: AtomicBool,
    records: AtomicU64,
    bytes_written: AtomicU64,
    payload_bytes: AtomicU64,
    segments_created: AtomicU64,
    segments_recycled: AtomicU64,
    /// Time that appends took to begin segments. Written under `tail`.
    rotation_ns: AtomicU64,
}

#[derive(Debug)]
struct Tail {
    segment: Arc<Segment>,
    offset: u64,
    link: Link,
    last_sequence: SequenceNumber,
    /// The next segment, once made. It stays even if its seal could not be written: parts of the
    /// seal may be on disk.
    prepared: Option<Prepared>,
    /// Segments made ahead.
    ahead: VecDeque<Arc<Segment>>,
    began_ns: u64,
    began_syncs: u64,
    /// Offset that triggers the request of the next segment; `u64::MAX` after that.
    calls_at: u64,
    /// Offset from which on the file may be unwritten.
    written_to: u64,
    buffer: Vec<u8>,
    mapping: Option<Box<dyn WriteMapping>>,
    /// Syncs when the last record was written.
    syncs: u64,
}

/// The next segment, and the seal that will end the current one exactly where it begins.
#[derive(Clone, Debug)]
struct Prepared {
    next: Arc<Segment>,
    /// Encoded again with a later `durable_lsn`, it might take fewer bytes.
    seal: RecordHeader,
}

impl Tail {
    fn header(&self, flags: RecordFlags, group: &GroupHeader, stored: &[u8], durable_lsn: Lsn) -> RecordHeader {
        let stored_len = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        RecordHeader {
            flags,
            stored_len,
            raw_len: stored_len,
            first_sequence: group.first_sequence,
            last_sequence: group.last_sequence,
            commit_time_us: group.commit_time_us.min(MAX_TIME_US),
            previous_link: self.link,
            durable_lsn,
            payload_checksum: payload_checksum(&self.segment.header, self.offset, stored),
        }
    }

    fn marker(&self, flags: RecordFlags, stored: &[u8], durable_lsn: Lsn) -> RecordHeader {
        let commit_time_us = self.segment.header.base_time_us;
        let (first_sequence, last_sequence) = (self.last_sequence, self.last_sequence);
        self.header(flags, &GroupHeader { first_sequence, last_sequence, commit_time_us }, stored, durable_lsn)
    }
}

impl Wal {
    /// Begins a new epoch (use of the log, from open to close) in a new segment. The directory
    /// exists. Before the first append, the caller must have recorded durably that recovery begins
    /// at [`Wal::oldest_segment`] and that the log is durable up to [`Wal::durable_lsn`], which
    /// reveals the loss of the new segment.
    pub fn create(context: WalContext, options: WalOptions, start: WalStart) -> Result<Wal> {
        options.check()?;
        let spare = first_segment(&context, &options)?;
        let next_len = AtomicU64::new(following_len(spare.len, &options));
        let header = SegmentHeader {
            file_id: context.runtime.random_u64(),
            start_lsn: start.start_lsn,
            epoch: start.epoch,
            number: spare.number,
            len: spare.len,
            previous_end_lsn: start.previous_end_lsn,
            previous_link: start.previous_link,
            previous_epoch: start.previous_epoch,
            durable_lsn: start.start_lsn,
            previous_sequence: start.previous_sequence,
            base_time_us: context.runtime.unix_time_us().min(MAX_TIME_US),
            is_zeroed: false,
        };
        let segment = spare.begin(&context, header).map_err(|e| e.error)?;
        let first_lsn = start.start_lsn + SEGMENT_HEADER_LEN;
        let began_ns = context.runtime.monotonic_coarse_ns();
        let mut segments = VecDeque::from(start.older);
        segments.push_back(segment.clone());
        Ok(Wal {
            context,
            options,
            epoch: start.epoch,
            tail: Mutex::new(Tail {
                offset: SEGMENT_HEADER_LEN,
                link: segment.first_link,
                last_sequence: start.previous_sequence,
                mapping: map(&segment),
                syncs: 0,
                began_syncs: 0,
                calls_at: Tail::calls_at(&segment),
                written_to: Tail::written_to(&segment),
                segment,
                prepared: None,
                ahead: VecDeque::new(),
                began_ns,
                buffer: Vec::new(),
            }),
            end_lsn: AtomicU64::new(first_lsn),
            sync_stage: SyncStage::new(first_lsn),
            latch: Latch::default(),
            segments: Mutex::new(segments),
            retained: Mutex::new(Retained { segments: start.retained, floor: start.floor, limit: start.retention }),
            spares: Mutex::default(),
            segments_ahead: AtomicUsize::new(0),
            tidied_at_syncs: AtomicU64::new(0),
            next_len,
            is_synced_often: AtomicBool::new(false),
            calls_for_next: AtomicBool::new(false),
            records: AtomicU64::new(0),
            bytes_written: AtomicU64::new(SEGMENT_HEADER_LEN),
            payload_bytes: AtomicU64::new(0),
            segments_created: AtomicU64::new(1),
            segments_recycled: AtomicU64::new(0),
            rotation_ns: AtomicU64::new(0),
        })
    }

    /// Appends a group and returns its end LSN, for [`Wal::sync`]. After [`Error::CommitUnknown`]
    /// the record may or may not be there at the next open; after other errors nothing was
    /// appended. After [`Error::DiskFull`] the same call may succeed later.
    pub fn append(&self, group: &GroupHeader, payload: &[u8]) -> Result<Lsn> {
        let raw_len = u32::try_from(payload.len())
            .map_err(|_| Error::InvalidArgument("a commit group of 4 GiB or more: commit it in parts".to_owned()))?;
        let span = group.last_sequence.checked_sub(group.first_sequence);
        if span.is_none_or(|span| span > u64::from(u32::MAX)) || group.last_sequence > MAX_SEQUENCE {
            return Err(Error::InvalidArgument(format!(
                "invalid range of sequence numbers in a commit group: {} to {}",
                group.first_sequence, group.last_sequence
            )));
        }
        let mut flags = RecordFlags::default();
        let mut stored = Cow::Borrowed(payload);
        if payload.len() >= self.options.compress_at_len
            && let Some(packed) = compress(Compression::Lz4, payload)
        {
            (flags, stored) = (RecordFlags::LZ4, Cow::Owned(packed));
        }
        let mut tail = self.tail.lock();
        self.latch.check()?;
        if group.first_sequence <= tail.last_sequence {
            return Err(Error::InvalidArgument(format!(
                "commit {} follows commit {}, and numbers must increase",
                group.first_sequence, tail.last_sequence
            )));
        }
        self.make_room(&mut tail, record_len_max(stored.len()))?;
        let header = RecordHeader { raw_len, ..tail.header(flags, group, &stored, self.durable_lsn()) };
        let end = self.write_record(&mut tail, &header, &stored)?;
        tail.last_sequence = group.last_sequence;
        tail.segment.set_last_sequence(group.last_sequence);
        self.call_for_next(&mut tail);
        count(&self.payload_bytes, u64::from(raw_len));
        Ok(end)
    }

    /// Waits until everything below `up_to` is durable; one flush serves all concurrent callers.
    /// [`Error::CommitUnknown`] if the flush failed, now or earlier.
    pub fn sync(&self, up_to: Lsn) -> Result<Lsn> {
        if up_to > self.end_lsn() {
            return Err(Error::InvalidArgument(format!("LSN {up_to} is past the end of the log, {}", self.end_lsn())));
        }
        self.sync_stage.wait(up_to, &self.latch, || self.flush())
    }

    /// Syncs an idle log and appends a note of that: recovery can distinguish later damage from a
    /// torn end.
    pub fn note_durable(&self) -> Result<()> {
        self.note(&[])
    }

    /// Syncs the log and marks it as cleanly closed, without an extra sync for the mark.
    pub fn note_closed(&self) -> Result<()> {
        self.note(&CLEAN_CLOSE)
    }

    fn note(&self, payload: &[u8]) -> Result<()> {
        self.sync(self.end_lsn())?;
        let end = {
            let mut tail = self.tail.lock();
            self.latch.check()?;
            self.make_room(&mut tail, record_len_max(payload.len()))?;
            let note = tail.marker(RecordFlags::NOTE, payload, self.durable_lsn());
            self.write_record(&mut tail, &note, payload)?
        };
        self.sync(end).map(|_| ())
    }

    pub fn reader_at_end(&self) -> LogReader {
        let tail = self.tail.lock();
        LogReader::at(Pin::new(&tail.segment), tail.offset, tail.link, tail.last_sequence)
    }

    pub fn floor(&self) -> SequenceNumber {
        self.retained.lock().floor
    }

    pub fn retention(&self) -> RetentionLimit {
        self.retained.lock().limit
    }

    pub fn retained(&self) -> (usize, u64) {
        let retained = self.retained.lock();
        (retained.segments.len(), retained.segments.iter().map(|segment| segment.header.len).sum())
    }

    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.segments.lock().iter().map(|segment| segment.info()).collect()
    }

    #[cfg(test)]
    pub fn spares(&self) -> Vec<crate::base::FileNumber> {
        self.spares.lock().iter().map(|spare| spare.number).collect()
    }

    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn.load(Ordering::Acquire)
    }

    pub fn durable_lsn(&self) -> Lsn {
        self.sync_stage.durable_lsn()
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    #[cfg(test)]
    pub fn failure(&self) -> Option<&str> {
        self.latch.reason()
    }

    /// Returns the time that appends took to begin segments, since the open.
    pub fn rotation_ns(&self) -> u64 {
        self.rotation_ns.load(Ordering::Relaxed)
    }

    pub fn stats(&self) -> WalStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            records: get(&self.records),
            bytes_written: get(&self.bytes_written),
            payload_bytes: get(&self.payload_bytes),
            syncs: self.sync_stage.syncs(),
            segments_created: get(&self.segments_created),
            segments_recycled: get(&self.segments_recycled),
        }
    }

    fn flush(&self) -> Result<Lsn> {
        let end = self.end_lsn();
        if let Some(pre_sync) = &self.context.pre_sync {
            pre_sync()?;
        }
        let durable = self.durable_lsn();
        // Take the files under the lock: later one may be reopened for reading only.
        let dirty: Vec<_> = {
            let segments = self.segments.lock();
            let dirty = segments.iter().filter(|s| s.end_lsn() > durable && s.header.start_lsn < end);
            dirty.map(|segment| (segment.file(), segment.path.clone())).collect()
        };
        for (file, path) in dirty {
            file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        }
        Ok(end)
    }

    fn make_room(&self, tail: &mut Tail, len: u64) -> Result<()> {
        // A prepared segment begins where a seal written now would end: no record may come between.
        loop {
            let ending_len = if !tail.ahead.is_empty() { FILLING_LEN_MIN } else { SEAL_LEN_MAX };
            if tail.prepared.is_none() && tail.offset + len + ending_len <= tail.segment.header.len {
                return Ok(());
            }
            self.rotate(tail, len)?;
        }
    }

    #[cold]
    #[inline(never)]
    fn rotate(&self, tail: &mut Tail, len: u64) -> Result<()> {
        let began_ns = self.context.runtime.monotonic_ns();
        let begun = self.begin_next_segment(tail, len);
        count(&self.rotation_ns, self.context.runtime.monotonic_ns().saturating_sub(began_ns));
        begun
    }

    fn write_record(&self, tail: &mut Tail, header: &RecordHeader, stored: &[u8]) -> Result<Lsn> {
        let syncs = self.sync_stage.syncs();
        let is_after_sync = std::mem::replace(&mut tail.syncs, syncs) != syncs;
        let Tail { segment, offset, buffer, mapping, written_to, .. } = &mut *tail;
        buffer.clear();
        let record = header.encode(&segment.header, *offset, buffer);
        let len = record.file_len();
        assert!(*offset + len <= segment.header.len, "a log record stays within its segment");
        let written = match mapping {
            Some(mapping) if !is_after_sync && stored.len() < CALL_BYTES_MIN => {
                if !stored.is_empty() {
                    mapping.write(stored, *offset + record.header_len as u64);
                }
                mapping.write(buffer, *offset);
                Ok(())
            }
            _ if stored.len() >= CALL_BYTES_MIN => {
                // Header last, as above.
                let file = segment.file();
                let payload = file.write_at(stored, *offset + record.header_len as u64);
                payload.and_then(|()| file.write_at(buffer, *offset))
            }
            _ => {
                buffer.extend_from_slice(stored);
                let end = *offset + len;
                let is_to_zero = is_after_sync && end > *written_to;
                if is_to_zero {
                    let zeroed_to = end.next_multiple_of(ZEROED_UNIT).min(segment.header.len);
                    buffer.resize((zeroed_to - *offset) as usize, 0);
                }
                let written = segment.file().write_at(buffer, *offset);
                if is_to_zero && written.is_ok() {
                    *written_to = *offset + buffer.len() as u64;
                }
                written
            }
        };
        if buffer.capacity() > BUFFER_LEN_KEPT {
            *buffer = Vec::new();
        }
        if let Err(error) = written {
            return Err(self.not_written(tail, record.header_len, len, error));
        }
        tail.offset += len;
        tail.link = record.link;
        let end = tail.segment.header.start_lsn + tail.offset;
        self.end_lsn.store(end, Ordering::Release);
        count(&self.records, 1);
        count(&self.bytes_written, len);
        Ok(end)
    }

    /// Erases a record after a failed write, of which any part may be in the file.
    fn not_written(&self, tail: &Tail, header_len: usize, len: u64, error: io::Error) -> Error {
        let zeros = [0; RECORD_HEADER_LEN_MAX];
        let file = tail.segment.file();
        let taken_back = file.write_at(&zeros[..header_len], tail.offset);
        // Erase the payload too, or it would look like a damaged tail after a crash.
        let mut payload = (header_len as u64..len).step_by(ZEROED_UNIT as usize);
        let zeros = vec![0; len.min(ZEROED_UNIT) as usize];
        let _ = taken_back.and_then(|()| {
            let write = |at: u64| file.write_at(&zeros[..(len - at).min(ZEROED_UNIT) as usize], tail.offset + at);
            payload.try_for_each(write)
        });
        let error = Error::io("append to", &tail.segment.path, error);
        if error.is_disk_full() {
            return error;
        }
        self.latch.set(format!("the log could not be written: {error}"));
        Error::CommitUnknown { reason: error.to_string() }
    }
}

impl SegmentSource for Wal {
    fn with_segments<R>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = &Arc<Segment>>, SequenceNumber) -> R) -> R {
        let segments = self.segments.lock();
        let retained = self.retained.lock();
        visit(&mut retained.segments.iter().chain(segments.iter()), retained.floor)
    }
}

fn map(segment: &Segment) -> Option<Box<dyn WriteMapping>> {
    segment.file().map_for_writing(segment.header.len).unwrap_or_else(|error| {
        tracing::debug!(path = %segment.path.display(), %error, "a log segment could not be mapped");
        None
    })
}

/// No atomic addition: the counter changes under `tail` alone.
fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

fn record_len_max(stored_len: usize) -> u64 {
    (RECORD_HEADER_LEN_MAX + stored_len) as u64
}
