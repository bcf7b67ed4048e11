//! The files of a database, opened by a second thread while the log is replayed.

use crate::{
    base::Result,
    platform::Runtime,
    table::TableContext,
    version::{FileSet, Layout, Version},
};
use parking_lot::Mutex;
use std::{path::Path, sync::Arc, thread::JoinHandle};

/// Fewer runs are opened before a thread has begun.
const RUNS_MIN: usize = 8;

/// Open files, and the version that is made of them, if it could be.
pub struct Opened {
    pub files: FileSet,
    pub version: Result<Version>,
}

impl Opened {
    /// Opens the files of a layout.
    pub fn now(dir: &Path, table: &TableContext, layout: &Layout) -> Opened {
        let mut files = FileSet::new(dir, table);
        let version = files.version(layout, None);
        Opened { files, version }
    }
}

/// The second thread.
pub struct FilesAhead {
    thread: JoinHandle<()>,
    opened: Arc<Mutex<Option<Opened>>>,
}

impl FilesAhead {
    /// Starts it; `None` if there is little to do for it, or no thread to be had.
    pub fn start(runtime: &dyn Runtime, dir: &Path, table: &TableContext, layout: &Layout) -> Option<FilesAhead> {
        if layout.runs.len() < RUNS_MIN {
            return None;
        }
        let opened = Arc::<Mutex<Option<Opened>>>::default();
        let (dir, table, layout, of_thread) = (dir.to_owned(), table.clone(), layout.clone(), Arc::clone(&opened));
        let body = move || {
            let now = Opened::now(&dir, &table, &layout);
            *of_thread.lock() = Some(now);
        };
        let thread = runtime.spawn("braiddb-open", Box::new(body)).ok()?;
        Some(FilesAhead { thread, opened })
    }

    /// Waits for it.
    pub fn finish(self) -> Opened {
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        self.opened.lock().take().expect("the thread has ended well")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Db, Settings,
        tests_common::{DIR, killed, open, small},
    };
    use super::*;
    use crate::platform::{SystemRuntime, Vfs, fault_vfs::FaultVfs};
    use std::{io, path::PathBuf};

    /// Notes which threads it starts.
    #[derive(Debug)]
    struct Noting {
        system: SystemRuntime,
        names: Mutex<Vec<String>>,
    }

    impl Noting {
        fn new() -> Arc<Noting> {
            Arc::new(Noting { system: SystemRuntime::new(), names: Mutex::default() })
        }

        /// Whether it has started a thread of this name.
        fn has_started(&self, name: &str) -> bool {
            self.names.lock().iter().any(|other| other == name)
        }
    }

    impl Runtime for Noting {
        fn unix_time_us(&self) -> u64 {
            self.system.unix_time_us()
        }
        fn monotonic_ns(&self) -> u64 {
            self.system.monotonic_ns()
        }
        fn random_u64(&self) -> u64 {
            self.system.random_u64()
        }
        fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
            self.names.lock().push(name.to_owned());
            self.system.spawn(name, body)
        }
        fn sleep_us(&self, micros: u64) {
            self.system.sleep_us(micros);
        }
        fn process_name(&self) -> String {
            self.system.process_name()
        }
    }

    fn settings(vfs: &FaultVfs, runtime: &Arc<Noting>, background_threads: usize) -> Settings {
        let (vfs, runtime): (Arc<dyn Vfs>, _) = (Arc::new(vfs.clone()), Arc::clone(runtime));
        Settings { background_threads, runtime, ..small(&vfs) }
    }

    fn rows(db: &Db) -> u64 {
        db.tree("t").unwrap().iter().inspect(|row| assert!(row.is_ok())).count() as u64
    }

    /// A database of so many rows after a kill.
    fn of_rows(rows: u64) -> FaultVfs {
        let vfs = FaultVfs::new(Path::new(DIR));
        let db = open(settings(&vfs, &Noting::new(), 0)).unwrap();
        let tree = db.tree("t").unwrap();
        (0..rows).for_each(|row| _ = tree.put(row.wrapping_mul(0x9e37_79b9).to_be_bytes(), [1; 50]).unwrap());
        killed(&vfs)
    }

    #[test]
    fn with_threads_many_files_are_opened_beside_the_replay() {
        for (count, is_ahead) in [(100, false), (4_000, true)] {
            let image = of_rows(count);
            for threads in [0, 2] {
                let (vfs, runtime) = (killed(&image), Noting::new());
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
                let (vfs, runtime) = (FaultVfs::of_files(Path::new(DIR), &files), Noting::new());
                let error = open(settings(&vfs, &runtime, threads)).unwrap_err();
                assert!(error.is_corruption() && vfs.files() == files, "{error}");
                error.to_string()
            };
            assert_eq!(error(0), error(2), "without {}", run.display());
        }
    }

    #[test]
    fn memory_is_made_ready_where_there_is_much_to_be_replayed() {
        for (rows_of_log, is_much) in [(100, false), (2_000, true)] {
            let large = |vfs: &FaultVfs, runtime: &Arc<Noting>, threads| Settings {
                memory: 64 << 20,
                memtable_bytes: Some(8 << 20),
                log_segment_bytes: 4 << 20,
                blob_threshold: 1 << 20,
                ..settings(vfs, runtime, threads)
            };
            let vfs = FaultVfs::new(Path::new(DIR));
            let db = open(large(&vfs, &Noting::new(), 0)).unwrap();
            let tree = db.tree("t").unwrap();
            (0..rows_of_log).for_each(|row: u64| _ = tree.put(row.to_be_bytes(), [1; 1000]).unwrap());
            for threads in [0, 2] {
                let (vfs, runtime) = (killed(&vfs), Noting::new());
                let again = open(large(&vfs, &runtime, threads)).unwrap();
                assert_eq!(runtime.has_started("braiddb-room"), is_much && threads > 0, "{rows_of_log} rows");
                assert_eq!(rows(&again), rows_of_log);
                again.close().unwrap();
            }
        }
    }
}
