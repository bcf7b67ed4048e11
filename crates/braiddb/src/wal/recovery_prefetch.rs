//! A second thread that works ahead of recovery.
//!
//! It starts the write-back of files that recovery will sync, and scans the last segments, in
//! reverse order, for records past the log's end. Recovery itself does what the thread has not.

use super::{
    format::{Lsn, SegmentHeader},
    scan::{Beyond, SegmentReader},
};
use crate::{
    base::{FileNumber, Result},
    platform::{File, Runtime},
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

/// Maximum segments to scan; no more are made ahead.
const PROBED_MAX: usize = 4;

/// A segment to scan. Its length is at most the file's.
pub struct SegmentProbe {
    pub header: SegmentHeader,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
}

impl SegmentProbe {
    pub fn read(&self) -> Result<Beyond> {
        SegmentReader::new(&self.header, &*self.file, &self.path).beyond(0)
    }
}

pub struct RecoveryPrefetch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    segments: Mutex<Vec<SegmentProbe>>,
    found: Mutex<BTreeMap<FileNumber, Beyond>>,
    /// Start of the segment that recovery has reached; earlier ones need no scan.
    reached: AtomicU64,
}

impl RecoveryPrefetch {
    /// `None` if there is nothing to scan or no thread. `segments` are those of the last epoch (use
    /// of the log) except its first, in any order; `written_back` are files and lengths to write
    /// back.
    pub fn start(
        runtime: &dyn Runtime,
        mut segments: Vec<SegmentProbe>,
        written_back: Vec<(Arc<dyn File>, u64)>,
    ) -> Option<RecoveryPrefetch> {
        segments.sort_unstable_by_key(|probe| probe.header.start_lsn);
        let segments = segments.split_off(segments.len().saturating_sub(PROBED_MAX));
        if segments.is_empty() {
            return None;
        }
        let (segments, found, reached) = (Mutex::new(segments), Mutex::default(), AtomicU64::default());
        let shared = Arc::new(Shared { segments, found, reached });
        let of_thread = Arc::clone(&shared);
        let body = move || {
            for (file, len) in written_back {
                file.start_write_back(0, len);
            }
            while of_thread.probe_one() {}
        };
        let thread = runtime.spawn("braiddb-log-probe", Box::new(body)).ok()?;
        Some(RecoveryPrefetch { shared, thread: Some(thread) })
    }

    pub fn reach(&self, start_lsn: Lsn) {
        self.shared.reached.store(start_lsn, Ordering::Relaxed);
    }

    pub fn finish(mut self) -> BTreeMap<FileNumber, Beyond> {
        while self.shared.probe_one() {}
        self.join();
        std::mem::take(&mut *self.shared.found.lock())
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// False if there is none, or recovery has reached it.
    fn probe_one(&self) -> bool {
        let Some(probe) = self.segments.lock().pop() else { return false };
        if probe.header.start_lsn <= self.reached.load(Ordering::Relaxed) {
            return false;
        }
        // Recovery meets the same failure where it matters.
        if let Ok(beyond) = probe.read() {
            self.found.lock().insert(probe.header.number, beyond);
        }
        true
    }
}

impl Drop for RecoveryPrefetch {
    fn drop(&mut self) {
        self.reach(Lsn::MAX);
        self.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        platform::{MemVfs, OpenMode, SystemRuntime, Vfs, gated_runtime::GatedRuntime},
        wal::format::SEGMENT_HEADER_LEN,
    };
    use std::{path::Path, sync::atomic::AtomicBool, thread};

    fn segments(count: u64) -> Vec<SegmentProbe> {
        let (vfs, len) = (MemVfs::new(), 1 << 20);
        let segment = |number: u64| {
            let path = Path::new("/").join(number.to_string());
            let file = vfs.open(&path, OpenMode::CreateNew).unwrap();
            file.set_len(if number + 1 == count { len } else { SEGMENT_HEADER_LEN + 9 }).unwrap();
            let header = SegmentHeader {
                file_id: 1,
                start_lsn: number * len,
                epoch: 1,
                number,
                len: file.len().unwrap(),
                previous_end_lsn: number * len,
                previous_link: 0,
                previous_epoch: 1,
                durable_lsn: 0,
                previous_sequence: 0,
                base_time_us: 0,
                is_zeroed: false,
            };
            SegmentProbe { header, path, file }
        };
        (0..count).map(segment).collect()
    }

    #[test]
    fn prefetch_scans_only_the_last_segments() {
        let runtime = SystemRuntime::new();
        assert!(RecoveryPrefetch::start(&runtime, Vec::new(), Vec::new()).is_none());
        for count in 1..=7 {
            let prefetch = RecoveryPrefetch::start(&runtime, segments(count), Vec::new()).unwrap();
            let found = prefetch.finish();
            // The first one begins where recovery does.
            let expected = count.saturating_sub(PROBED_MAX as u64).max(1)..count;
            assert!(found.keys().copied().eq(expected), "{:?} of {count}", found.keys());
            assert!(found.values().all(|beyond| *beyond == Beyond::default()));
        }
    }

    #[test]
    fn prefetch_finish_does_not_wait_for_segments_not_begun() {
        let late = GatedRuntime::new();
        let gate = late.hold_back();
        let prefetch = RecoveryPrefetch::start(&*late, segments(4), Vec::new()).unwrap();
        let shared = Arc::clone(&prefetch.shared);
        let (system, is_first) = (SystemRuntime::new(), Arc::new(AtomicBool::new(false)));
        let reported = Arc::clone(&is_first);
        let opener = move || {
            let clock = SystemRuntime::new();
            let is_done = || shared.found.lock().len() == 3;
            while !is_done() && clock.monotonic_ns() < 20_000_000_000 {
                thread::yield_now();
            }
            reported.store(is_done(), Ordering::Relaxed);
            gate.wait();
        };
        let opener = system.spawn("opener", Box::new(opener)).unwrap();
        let found = prefetch.finish();
        opener.join().unwrap();
        assert!(is_first.load(Ordering::Relaxed), "before the thread did anything");
        assert!(found.keys().copied().eq(1..4), "{:?}", found.keys());
    }

    #[test]
    fn prefetch_omits_unreadable_segments() {
        let mut segments = segments(3);
        segments[2].header.len *= 2;
        let found = RecoveryPrefetch::start(&SystemRuntime::new(), segments, Vec::new()).unwrap().finish();
        assert!(found.keys().copied().eq([1]), "{:?}", found.keys());
    }
}
