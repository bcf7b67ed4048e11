//! Releases segments that no run needs any more: retains, recycles or removes them, and keeps spare
//! ones ready.

use super::Wal;
use crate::{
    base::{FileNumber, Result, SequenceNumber},
    wal::segment::{FinishedSegment, Segment, Spare, remove_segment, sync_failed},
};
use std::sync::{Arc, atomic::Ordering};

impl Wal {
    /// [`Wal::release_with`] with nothing beside the log.
    #[cfg(test)]
    pub fn release(&self, oldest_segment: FileNumber) -> usize {
        self.release_with(oldest_segment, |_| 0)
    }

    /// Releases the segments before `oldest_segment`, a durably recorded result of
    /// [`Wal::oldest_needed`]. They must be synced. They are retained within the limit; further
    /// ones become spares or are removed. Returns the number of those. Does nothing after a call
    /// that released more. `beside` returns the bytes that retention down to a floor pins outside
    /// the log.
    pub fn release_with(&self, oldest_segment: FileNumber, beside: impl Fn(SequenceNumber) -> u64) -> usize {
        let (released, resting) = {
            let mut segments = self.segments.lock();
            let mut retained = self.retained.lock();
            let unneeded = segments.iter().position(|segment| segment.header.number == oldest_segment).unwrap_or(0);
            retained.segments.extend(segments.drain(..unneeded));
            let now_us = self.context.runtime.unix_time_us();
            let released = retained.trim(now_us, segments.front(), beside);
            (released, retained.segments.iter().rev().take(unneeded).cloned().collect::<Vec<_>>())
        };
        let count = released.len();
        for segment in resting {
            self.rest(&segment);
        }
        for segment in released {
            self.recycle(&segment);
        }
        count
    }

    /// Reopens a retained segment for reading only. If it was released meanwhile, its reader must
    /// keep the file opened before its name was removed.
    fn rest(&self, segment: &Arc<Segment>) {
        let Some(file) = segment.open_to_rest(&*self.context.vfs) else { return };
        let before = {
            let retained = self.retained.lock();
            retained.segments.iter().any(|held| Arc::ptr_eq(held, segment)).then(|| segment.rest(file))
        };
        drop(before);
    }

    /// Recycles a released segment, or removes it if a reader has it.
    fn recycle(&self, segment: &Segment) {
        let is_read = segment.readers.load(Ordering::Acquire) > 0;
        let (len, segment_len) = (segment.header.len, self.options.segment_len);
        let is_synced_often = self.is_synced_often.load(Ordering::Relaxed);
        let is_usual = len == segment_len || is_synced_often && len == self.written_len_max();
        let may_be_spare = !is_read && is_usual && self.options.spares_max > 0;
        let file = may_be_spare.then(|| segment.file_to_write(&*self.context.vfs));
        let mut spares = self.spares.lock();
        let ahead = self.segments_ahead.load(Ordering::Relaxed).saturating_sub(1) as u64 * segment_len;
        let waiting = ahead + spares.iter().map(|spare| spare.len).sum::<u64>();
        match file {
            Some(Ok(file)) if waiting + len <= self.options.spares_max as u64 * segment_len => {
                spares.push(segment.to_spare(file, self.durable_lsn()));
            }
            _ => {
                drop(spares);
                remove_segment(&self.context, &segment.path);
            }
        }
    }

    /// Called by a background thread, which saves the appender a sync. If the log is synced often,
    /// fills the spare with zeros, which makes those syncs cheaper. True if one was made.
    pub fn prepare_spare(&self) -> Result<bool> {
        self.latch.check()?;
        if !self.spares.lock().is_empty() || self.options.spares_max == 0 {
            return Ok(false);
        }
        let is_synced_often = self.is_synced_often.load(Ordering::Relaxed);
        let len_max = if is_synced_often { self.written_len_max() } else { u64::MAX };
        let len = self.next_len.load(Ordering::Relaxed).min(len_max);
        let spare = Spare::create(&self.context, len, is_synced_often).map_err(|e| self.not_made(e))?;
        self.spares.lock().push(spare);
        Ok(true)
    }

    /// Syncs the earlier contents of spares in a background thread, so that no later sync must.
    /// Does nothing if the log is not synced.
    pub fn tidy(&self) -> Result<()> {
        let syncs = self.sync_stage.syncs();
        if self.tidied_at_syncs.swap(syncs, Ordering::Relaxed) == syncs {
            return Ok(());
        }
        loop {
            let dirty = |spare: &mut Spare| {
                std::mem::take(&mut spare.is_dirty).then(|| (Arc::clone(&spare.file), spare.path.clone()))
            };
            let Some((file, path)) = self.spares.lock().iter_mut().find_map(dirty) else { return Ok(()) };
            let synced = file.sync_data().map_err(|e| sync_failed(&path, e));
            synced.map_err(|e| self.not_made(e))?;
        }
    }

    /// Returns the segments that will not be written to any more, without retained ones.
    pub fn finished_segments(&self) -> Vec<FinishedSegment> {
        let segments = self.segments.lock();
        let finished = segments.iter().filter(|segment| segment.end_lsn() != u64::MAX);
        let describe = |segment: &Arc<Segment>| FinishedSegment {
            number: segment.header.number,
            file_id: segment.header.file_id,
            path: segment.path.clone(),
            end_lsn: segment.end_lsn(),
            used_len: segment.end_lsn().saturating_sub(segment.header.start_lsn).min(segment.header.len),
            len: segment.header.len,
            last_sequence: segment.last_sequence(),
        };
        finished.map(describe).collect()
    }

    /// Removes spares and segments made ahead, for an idle log. Returns the number of spares.
    pub fn trim_spares(&self) -> usize {
        self.drop_ahead(&mut self.tail.lock());
        let spares = std::mem::take(&mut *self.spares.lock());
        for spare in &spares {
            spare.remove(&self.context);
        }
        spares.len()
    }

    pub fn oldest_segment(&self) -> FileNumber {
        self.oldest_needed(0)
    }

    pub fn oldest_needed(&self, flushed: SequenceNumber) -> FileNumber {
        self.oldest_needed_by(flushed, &|_| false)
    }

    /// The segment where recovery must begin once everything up to `flushed` is in runs. Segments
    /// for which `others_need` is true are needed too.
    pub fn oldest_needed_by(&self, flushed: SequenceNumber, others_need: &dyn Fn(FileNumber) -> bool) -> FileNumber {
        let segments = self.segments.lock();
        let last = segments.len().saturating_sub(1);
        let is_needed = |s: &Arc<Segment>| s.last_sequence() > flushed || others_need(s.header.number);
        let first_needed = segments.iter().take(last).position(is_needed).unwrap_or(last);
        segments.get(first_needed).map_or(0, |segment| segment.header.number)
    }
}
