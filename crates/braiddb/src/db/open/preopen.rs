//! Opens a database's files on a second thread during replay.

use crate::{
    base::Result,
    platform::Runtime,
    table::TableContext,
    version::{FileSet, Layout, Version},
};
use parking_lot::Mutex;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// Minimum runs for a thread to pay off.
const RUNS_MIN: usize = 8;

pub struct Opened {
    pub files: FileSet,
    pub version: Result<Version>,
}

impl Opened {
    pub fn now(dir: &Path, table: &TableContext, layout: &Layout) -> Opened {
        let mut files = FileSet::new(dir, table);
        let version = files.version(layout, None);
        Opened { files, version }
    }

    pub fn checked(self) -> Result<Opened> {
        Ok(Opened { version: Ok(self.version?), ..self })
    }
}

pub struct FilesAhead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    dir: PathBuf,
    table: TableContext,
    layout: Layout,
    is_begun: AtomicBool,
    opened: Mutex<Option<Opened>>,
}

impl Shared {
    fn open(&self) {
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            let now = Opened::now(&self.dir, &self.table, &self.layout);
            *self.opened.lock() = Some(now);
        }
    }
}

impl FilesAhead {
    /// Starts the thread; `None` if there are few runs or no thread is available.
    pub fn start(runtime: &dyn Runtime, dir: &Path, table: &TableContext, layout: &Layout) -> Option<FilesAhead> {
        if layout.runs.len() < RUNS_MIN {
            return None;
        }
        let (dir, table, layout) = (dir.to_owned(), table.clone(), layout.clone());
        let shared =
            Arc::new(Shared { dir, table, layout, is_begun: AtomicBool::new(false), opened: Mutex::default() });
        let of_thread = Arc::clone(&shared);
        let thread = runtime.spawn("braiddb-open", Box::new(move || of_thread.open())).ok()?;
        Some(FilesAhead { shared, thread: Some(thread) })
    }

    /// Waits for the thread, or opens the files if it has not begun.
    pub fn finish(mut self) -> Opened {
        self.shared.open();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        self.shared.opened.lock().take().expect("the thread has ended well, or this one has opened them")
    }
}

impl Drop for FilesAhead {
    /// No file may be opened after the directory's lock is released.
    fn drop(&mut self) {
        self.shared.is_begun.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::tests_common::{DIR, killed, open, small};
    use crate::db::{engine::settings::Settings, export::follower::Follower, handles::database::Db};
    use crate::platform::{Vfs, fault_vfs::FaultVfs, gated_runtime::GatedRuntime};

    fn settings(vfs: &FaultVfs, runtime: &Arc<GatedRuntime>, background_threads: usize) -> Settings {
        let (vfs, runtime): (Arc<dyn Vfs>, _) = (Arc::new(vfs.clone()), Arc::clone(runtime));
        Settings { background_threads, runtime, ..small(&vfs) }
    }

    fn rows(db: &Db) -> u64 {
        db.tree("t").unwrap().iter().inspect(|row| assert!(row.is_ok())).count() as u64
    }

    /// Creates a database of `rows` rows after a kill.
    fn of_rows(rows: u64) -> FaultVfs {
        let vfs = FaultVfs::new(Path::new(DIR));
        let db = open(settings(&vfs, &GatedRuntime::new(), 0)).unwrap();
        let tree = db.tree("t").unwrap();
        (0..rows).for_each(|row| _ = tree.put(row.wrapping_mul(0x9e37_79b9).to_be_bytes(), [1; 50]).unwrap());
        killed(&vfs)
    }

    #[test]
    fn with_threads_many_files_are_opened_beside_the_replay() {
        for (count, is_ahead) in [(100, false), (4_000, true)] {
            let image = of_rows(count);
            for threads in [0, 2] {
                let (vfs, runtime) = (killed(&image), GatedRuntime::new());
                let db = open(settings(&vfs, &runtime, threads)).unwrap();
                assert_eq!(runtime.has_started("braiddb-open"), is_ahead && threads > 0, "{count} rows");
                assert_eq!(rows(&db), count);
                db.close().unwrap();
            }
        }
    }

    #[test]
    fn an_error_of_a_file_is_the_same_with_and_without_threads() {
        let image = of_rows(4_000);
        let runs: Vec<PathBuf> =
            image.files().into_keys().filter(|path| path.extension().is_some_and(|e| e == "run")).collect();
        assert!(runs.len() >= RUNS_MIN);
        for run in runs.iter().step_by(3) {
            let mut files = image.files();
            let bytes = files.get_mut(run).unwrap();
            bytes.truncate(bytes.len() - 1);
            let error = |threads| {
                let (vfs, runtime) = (FaultVfs::of_files(Path::new(DIR), &files), GatedRuntime::new());
                let error = open(settings(&vfs, &runtime, threads)).unwrap_err();
                assert!(error.is_corruption() && vfs.files() == files, "{error}");
                assert_eq!(runtime.has_started("braiddb-open"), threads > 0);
                error.to_string()
            };
            assert_eq!(error(0), error(2), "without {}", run.display());
        }
    }

    /// Files that a late thread has not begun to open are opened by the caller.
    #[test]
    fn files_are_opened_once_whoever_comes_first() {
        let (vfs, runtime) = (of_rows(4_000), GatedRuntime::new());
        let db = open(settings(&vfs, &runtime, 0)).unwrap();
        let layout = db.engine().storage.disk.lock().manifest.layout().clone();
        let mut read = Vec::new();
        for is_late in [false, true] {
            let gate = is_late.then(|| runtime.hold_back());
            let from = vfs.bytes_read("run");
            let ahead = FilesAhead::start(&*runtime, Path::new(DIR), &db.engine().storage.table, &layout).unwrap();
            let shared = Arc::clone(&ahead.shared);
            if let Some(gate) = gate {
                shared.open();
                assert!(shared.opened.lock().is_some());
                gate.wait();
            }
            let opened = ahead.finish();
            assert_eq!(opened.version.unwrap().partitions.len(), layout.partitions.len());
            read.push(vfs.bytes_read("run") - from);
        }
        assert!(read[0] > 0 && read[0] == read[1], "{read:?}: opened more than once");
        // After the drop, a late thread opens nothing.
        let gate = runtime.hold_back();
        let ahead = FilesAhead::start(&*runtime, Path::new(DIR), &db.engine().storage.table, &layout).unwrap();
        let shared = Arc::clone(&ahead.shared);
        let opener = runtime.system.spawn("gate", Box::new(move || _ = gate.wait())).unwrap();
        drop(ahead);
        opener.join().unwrap();
        assert_eq!(Arc::strong_count(&shared), 1, "the thread has ended");
    }

    #[test]
    fn memory_is_made_ready_where_there_is_much_to_be_replayed() {
        for (rows_of_log, is_much) in [(100, false), (2_000, true)] {
            let large = |vfs: &FaultVfs, runtime: &Arc<GatedRuntime>, threads| Settings {
                memory: 64 << 20,
                memtable_bytes: Some(8 << 20),
                log_segment_bytes: 4 << 20,
                blob_threshold: 1 << 20,
                ..settings(vfs, runtime, threads)
            };
            let vfs = FaultVfs::new(Path::new(DIR));
            let db = open(large(&vfs, &GatedRuntime::new(), 0)).unwrap();
            let tree = db.tree("t").unwrap();
            (0..rows_of_log).for_each(|row: u64| _ = tree.put(row.to_be_bytes(), [1; 1000]).unwrap());
            let image = killed(&vfs);
            for threads in [0, 2] {
                let (vfs, runtime) = (killed(&image), GatedRuntime::new());
                let again = open(large(&vfs, &runtime, threads)).unwrap();
                assert_eq!(runtime.has_started("braiddb-room"), is_much && threads > 0, "{rows_of_log} rows");
                assert_eq!(rows(&again), rows_of_log);
                again.close().unwrap();
                let (vfs, runtime) = (killed(&image), GatedRuntime::new());
                drop(Follower::open_with(large(&vfs, &runtime, threads), Path::new(DIR), None).unwrap());
                assert!(!runtime.has_started("braiddb-room"), "who follows has nobody who gives it back");
            }
        }
    }
}
