//! Writes of flushes.

use crate::{
    codec::Compression,
    db::{
        Settings,
        tests_common::{mem, open, small},
    },
    platform::{File, FileLayer, OpenMode, Vfs, VfsLayer},
};
use parking_lot::Mutex;
use std::{io, path::Path, sync::Arc};

#[derive(Clone, Debug)]
struct Noting {
    inner: Arc<dyn Vfs>,
    longest: Arc<Mutex<usize>>,
}

#[derive(Debug)]
struct NotingFile {
    inner: Arc<dyn File>,
    longest: Arc<Mutex<usize>>,
}

impl VfsLayer for Noting {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        if path.extension().is_some_and(|e| e == "run") {
            return Ok(Arc::new(NotingFile { inner, longest: Arc::clone(&self.longest) }));
        }
        Ok(inner)
    }
}

impl FileLayer for NotingFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut longest = self.longest.lock();
        *longest = buf.len().max(*longest);
        self.inner.write_at(buf, offset)
    }
}

#[test]
fn large_runs_are_written_by_the_huge_page_and_others_in_shorter_pieces() {
    for (mebibytes, longest) in [(24, 512 << 10), (68, 2 << 20)] {
        let noting = Noting { inner: mem(), longest: Arc::default() };
        let vfs: Arc<dyn Vfs> = Arc::new(noting.clone());
        let settings = Settings {
            memory: 1 << 30,
            memtable_bytes: Some(256 << 20),
            partition_bytes: Some(1 << 30),
            log_segment_bytes: 128 << 20,
            blob_threshold: 64 << 10,
            compression: Compression::None,
            ..small(&vfs)
        };
        let db = open(settings).unwrap();
        let tree = db.tree("t").unwrap();
        for i in 0..mebibytes * 32u32 {
            tree.put(i.to_be_bytes(), [7; 32 << 10]).unwrap();
        }
        db.flush().unwrap();
        assert_eq!(*noting.longest.lock(), longest, "of {mebibytes} MiB");
    }
}
