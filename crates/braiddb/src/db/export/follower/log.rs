//! The writer's log as a follower reads it: all records once, then the appended ones.

use crate::{
    base::{Error, FileNumber, Result, SequenceNumber},
    db::{
        engine::{root::Engine, settings::Settings},
        files::blob_store::BlobStore,
        open::{
            opening::known_functions,
            replay::{Replayed, Walk, replay},
        },
    },
    memtable::Memtable,
    version::Manifest,
    wal::{Followed, RecordInfo, Tail},
};
use std::{collections::BTreeSet, path::Path, sync::Arc};

/// Retries and pauses before an incomplete last record counts as torn.
const TAIL_TRIES: u32 = 4;
const TAIL_PAUSE_US: u64 = 5_000;

pub(super) struct Log {
    /// `None` without a log that matches the manifest.
    pub(super) tail: Option<Tail>,
    pub(super) memtables: Vec<Arc<Memtable>>,
    /// Records that no state has yet, including those of a failed refresh.
    pub(super) unshown: u64,
    pub(super) last_sequence: SequenceNumber,
    pub(super) last_commit_us: u64,
    pub(super) blob_files: BTreeSet<FileNumber>,
    /// Whether the last record announces a load.
    pub(super) load_is_next: bool,
    /// Whether records follow an announced load: then the manifest must be checked.
    pub(super) is_past_load: bool,
    /// The torn or damaged tail at the first read.
    pub(super) tail_note: Option<String>,
}

impl Log {
    pub(super) fn read(settings: &Settings, dir: &Path, manifest: &Manifest, blobs: &BlobStore) -> Result<Log> {
        let layout = manifest.layout();
        let functions = Arc::new(known_functions(settings)?);
        let replayed = replay(settings, dir, layout, blobs, &functions, false)?;
        let Replayed { memtables, records, last_commit_us, blob_files, load_is_next, is_past_load, outcome, .. } =
            replayed;
        if let Some(tail) = &outcome.tail
            && !tail.is_same_segment()?
        {
            return Err(tail.lost());
        }
        // Reused segments keep their names.
        if outcome.begins_after > layout.flushed {
            let detail = format!(
                "the log begins after commit {}, and what is in runs ends with {}",
                outcome.begins_after, layout.flushed
            );
            return Err(Error::corruption(dir, 0, detail));
        }
        // Values that a record refers to may have moved once it was flushed.
        if outcome.is_stopped && manifest.has_gone_on()? {
            return Err(Error::corruption(dir, 0, outcome.tail_note.unwrap_or_default()));
        }
        let tail_note = match &outcome.tail {
            // An intact record with a missing value says nothing about a writer.
            _ if outcome.is_stopped => outcome.tail_note,
            Some(tail) if outcome.tail_note.is_some() && !is_being_written(settings, tail)? => outcome.tail_note,
            _ => None,
        };
        // Unlike a writer's, this number must not pass the last valid commit.
        let last_sequence = layout.flushed.max(outcome.last_sequence);
        let tail = outcome.tail;
        let mut log = Log {
            tail,
            memtables,
            unshown: records,
            last_sequence,
            last_commit_us,
            blob_files,
            load_is_next,
            is_past_load,
            tail_note,
        };
        if log.lacks_load(manifest)? {
            return Err(Error::corruption(dir, 0, "the log goes on after a load, and CURRENT has gone on"));
        }
        Ok(log)
    }

    /// Reads appended records; false if the log cannot be followed any more.
    pub(super) fn follow(
        &mut self,
        settings: &Settings,
        dir: &Path,
        manifest: &Manifest,
        blobs: &BlobStore,
    ) -> Result<bool> {
        let layout = manifest.layout();
        let Some(tail) = &mut self.tail else {
            return Ok(layout.oldest_segment == 0);
        };
        let functions = known_functions(settings)?;
        let active = self.memtables.pop().unwrap_or_else(|| Engine::new_memtable(settings, 0));
        let walk = Walk::new(settings, layout, blobs, &functions, active);
        let mut walk = walk.going_on(self.last_sequence, self.load_is_next);
        let visitor = &mut |info: &RecordInfo, payload: &[u8]| walk.visit(info, payload);
        let followed = tail.follow(&*settings.vfs, dir, visitor);
        if walk.records > 0 {
            self.tail_note = None;
        }
        // Taken even after an error, because the tail is behind these records.
        self.take(walk);
        Ok(followed? == Followed::All && !self.lacks_load(manifest)?)
    }

    /// Whether the log was read past a load that the manifest may lack: the manifest was read
    /// earlier.
    fn lacks_load(&mut self, manifest: &Manifest) -> Result<bool> {
        self.is_past_load = self.is_past_load && manifest.has_gone_on()?;
        Ok(self.is_past_load)
    }

    fn take(&mut self, walk: Walk<'_>) {
        self.unshown += walk.records;
        self.last_sequence = self.last_sequence.max(walk.last_sequence);
        self.last_commit_us = self.last_commit_us.max(walk.last_commit_us);
        self.blob_files.extend(walk.files.keys());
        self.load_is_next = walk.load_is_next;
        self.is_past_load |= walk.is_past_load;
        self.memtables.extend(walk.memtables);
        self.memtables.push(walk.memtable);
    }
}

/// Returns whether the writer completed the last record meanwhile.
fn is_being_written(settings: &Settings, tail: &Tail) -> Result<bool> {
    for _ in 0..TAIL_TRIES {
        if tail.has_gone_on()? || !tail.is_same_segment()? {
            return Ok(true);
        }
        settings.runtime.sleep_us(TAIL_PAUSE_US);
    }
    Ok(false)
}
