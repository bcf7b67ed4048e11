//! Helpers of the batteries with real threads.

use super::full_text;
use braiddb::{
    Db,
    platform::{MemVfs, Vfs},
};
use braiddb_sim::{
    model::{Bytes, short},
    numbered,
};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::Duration,
};

/// Seconds after which a test counts as hanging.
const HANG_S: u64 = 300;

/// A count times `BRAIDDB_VOLUME`, also in debug builds.
pub fn scaled(count: u64) -> u64 {
    let factor = std::env::var("BRAIDDB_VOLUME").ok().map_or(1.0, |text| text.parse().expect("a factor as volume"));
    ((count as f64 * factor) as u64).max(10)
}

pub fn bounded(body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = std::thread::Builder::new().spawn(move || {
        body();
        let _ = done.send(());
    });
    let thread = thread.expect("a thread");
    match is_done.recv_timeout(Duration::from_secs(HANG_S)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("no end after {HANG_S} s: something hangs"),
        _ => {
            if let Err(cause) = thread.join() {
                std::panic::resume_unwind(cause);
            }
        }
    }
}

#[derive(Clone)]
pub struct Place {
    vfs: Option<Arc<dyn Vfs>>,
    path: PathBuf,
    seed: u64,
    direct: bool,
    _dir: Option<Arc<tempfile::TempDir>>,
}

impl Place {
    pub fn memory(seed: u64) -> Place {
        Place {
            vfs: Some(Arc::new(MemVfs::new())),
            path: Path::new("/memory").to_owned(),
            seed,
            direct: false,
            _dir: None,
        }
    }

    pub fn disk(seed: u64) -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        Place { vfs: None, path: dir.path().join("db"), seed, direct: false, _dir: Some(Arc::new(dir)) }
    }

    /// Uses direct I/O if the file system supports it.
    pub fn direct(seed: u64) -> Place {
        Place { direct: true, ..Place::disk(seed) }
    }

    pub fn try_open(&self) -> braiddb::Result<Db> {
        let mut builder = numbered::builder(self.seed).background_threads(2).direct_io(self.direct);
        if let Some(vfs) = &self.vfs {
            builder = builder.vfs(Arc::clone(vfs));
        }
        builder.open(&self.path)
    }

    pub fn open(&self) -> Db {
        self.try_open().unwrap_or_else(|e| panic!("open: {}", full_text(&e)))
    }
}

pub fn ok<T>(result: braiddb::Result<T>) -> T {
    result.unwrap_or_else(|e| panic!("{}", full_text(&e)))
}

pub fn compare(
    rows: impl Iterator<Item = braiddb::Result<(braiddb::Key, braiddb::Value)>>,
    expected: &[(Bytes, Bytes)],
    what: impl Fn() -> String,
) {
    let mut expected = expected.iter();
    for row in rows {
        let (key, value) = ok(row);
        let Some(next) = expected.next() else { panic!("{}: unexpected key {}", what(), short(&key)) };
        assert!(*key == *next.0, "{}: {} instead of {}", what(), short(&key), short(&next.0));
        assert!(
            *value == *next.1,
            "{}: the value of {}: {} instead of {}",
            what(),
            short(&key),
            short(&value),
            short(&next.1)
        );
    }
    if let Some(next) = expected.next() {
        panic!("{}: {} is missing", what(), short(&next.0));
    }
}
