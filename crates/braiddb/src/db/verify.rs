//! Verification: every file, every checksum.

use super::core::Core;
use crate::{
    base::{Error, Result},
    memtable::Memtable,
    table::blob::{BlobRef, visit_references},
    version::{CURRENT_NAME, Current, FileSet, Partition, RunHandle, manifest_name, read_records},
    view::Bounds,
    wal,
};
use std::sync::Arc;

/// What [`crate::Db::verify`] has found.
#[derive(Debug, Default)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes checked.
    pub bytes: u64,
    /// What is wrong: each with its file and offset. Empty if the database is sound.
    pub problems: Vec<Error>,
    /// What is odd but does no harm.
    pub notes: Vec<String>,
}

impl VerifyReport {
    fn note(&mut self, result: Result<u64>) {
        match result {
            Ok(bytes) => {
                self.files += 1;
                self.bytes += bytes;
            }
            Err(e) => self.problems.push(e),
        }
    }
}

/// Checks the view inside a run's file.
fn verify_own_view(handle: &RunHandle) -> Result<u64> {
    let view = handle.view()?;
    view.verify()?;
    view.verify_against(handle.alone(), &Bounds { start: Vec::new(), end: None })?;
    Ok(handle.run().meta().view_bytes)
}

impl Core {
    /// Reads every file and checks every checksum. Commits wait while the log's end is looked at, nothing else waits.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        let state = self.state.load_full();
        report.note(self.verify_current());
        report.note(self.verify_manifest());
        let mut seen = std::collections::BTreeSet::new();
        for partition in &state.version.partitions {
            for handle in partition.all_runs() {
                if seen.insert(handle.run().meta().number) {
                    report.note(handle.run().verify());
                    report.note(verify_own_view(handle));
                    self.verify_blobs(handle, &mut report)?;
                }
            }
            self.verify_view(partition, &mut report);
        }
        state.memtables().for_each(|memtable| self.verify_blobs_in_memory(memtable, &mut report));
        self.verify_log(&mut report);
        if let Some(note) = self.counters.log_tail_note.lock().clone() {
            report.notes.push(note);
        }
        let given_up = |why: &String| format!("a damaged partition is not merged any more: {why}");
        report.notes.extend(self.work.lock().failed.values().map(given_up));
        // Whoever opened the database meanwhile may have changed files under our hands.
        self.check_open()?;
        Ok(report)
    }

    fn verify_view(&self, partition: &Arc<Partition>, report: &mut VerifyReport) {
        if let Some(view) = &partition.view {
            let read = view.verify();
            report.note(read.and_then(|b| view.verify_against(&partition.view_runs, &partition.bounds()).map(|()| b)));
            return;
        }
        let damaged = partition.layout.view.as_ref().map(|v| v.number);
        if let Some(number) = damaged {
            let disk = self.disk.lock();
            let detail = disk.files.damaged_views().get(&number).cloned().unwrap_or_default();
            let path = FileSet::view_path(&self.dir, number);
            report.problems.push(Error::corruption(
                path,
                0,
                format!("the view is damaged and awaits rebuilding: {detail}"),
            ));
        }
    }

    fn verify_blobs(&self, handle: &RunHandle, report: &mut VerifyReport) -> Result<()> {
        if handle.run().meta().blob_uses.is_empty() {
            return Ok(());
        }
        let mut scan = handle.run().scan(crate::table::Position::default());
        loop {
            match scan.next() {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // The run's own verification has told of it.
                Err(_) => return Ok(()),
            }
            let entry = scan.entry();
            let found = visit_references(entry.kind, entry.value, |blob| self.verify_blob(blob, report));
            if found.is_none() {
                let detail = "a blob reference cannot be understood";
                report.problems.push(Error::corruption(handle.run().path(), 0, detail));
            }
        }
    }

    /// Values that only the log refers to.
    fn verify_blobs_in_memory(&self, memtable: &Arc<Memtable>, report: &mut VerifyReport) {
        let mut scan = memtable.scan();
        while scan.advance() {
            let entry = scan.entry();
            if visit_references(entry.kind, entry.value, |blob| self.verify_blob(blob, report)).is_none() {
                report.problems.push(self.blobs.misunderstood());
            }
        }
    }

    fn verify_blob(&self, blob: &BlobRef, report: &mut VerifyReport) {
        match self.blobs.verify(blob) {
            Ok(()) => report.bytes += blob.len,
            Err(e) => report.problems.push(e),
        }
    }

    /// Walks the segments. Commits wait meanwhile, so that no record is seen half written.
    fn verify_log(&self, report: &mut VerifyReport) {
        let Some(wal) = &self.wal else { return };
        let _write = self.write.lock();
        let segments = wal.segments();
        for (index, segment) in segments.iter().enumerate() {
            let path = wal::segment_path(&self.dir, segment.number);
            let end = segments.get(index + 1).map_or(wal.end_lsn(), |next| next.start_lsn);
            let walked = wal::inspect_segment(&*self.table.vfs, &path, &mut |_, _| Ok(())).and_then(|dump| {
                let reached = segment.start_lsn + dump.end_offset;
                // A segment of an earlier epoch may have ended before the next began; the last of this one may not.
                if index + 1 == segments.len() && reached < end {
                    return Err(Error::corruption(&path, dump.end_offset, "a record of the log is damaged"));
                }
                Ok(dump.end_offset)
            });
            // A flush may have let go of it meanwhile: then it is removed, or a spare.
            let is_gone = || wal.segments().iter().all(|kept| kept.number != segment.number);
            if walked.is_ok() || !is_gone() {
                report.note(walked);
            }
        }
    }

    fn verify_current(&self) -> Result<u64> {
        let path = self.dir.join(CURRENT_NAME);
        let vfs = &self.table.vfs;
        let file = vfs.open(&path, crate::platform::OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
        let _disk = self.disk.lock();
        for slot in Current::read_slots(&*file, &path)? {
            slot?;
        }
        file.len().map_err(|e| Error::io("read", &path, e))
    }

    fn verify_manifest(&self) -> Result<u64> {
        let disk = self.disk.lock();
        let path = self.dir.join(manifest_name(disk.manifest.number()));
        let vfs = &self.table.vfs;
        let file = vfs.open(&path, crate::platform::OpenMode::Read).map_err(|e| Error::io("open", &path, e))?;
        let len = disk.manifest.len();
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, 0).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::corruption(&path, 0, "the manifest is cut short"),
            _ => Error::io("read", &path, e),
        })?;
        read_records(&bytes, len, &path)?;
        Ok(len)
    }
}
