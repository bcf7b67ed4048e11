//! Reads of a blob file that no read has opened, while the disk is slow.

use crate::{
    db::{
        Settings,
        tests_common::{mem, open, small},
    },
    platform::{File, FileLayer, OpenMode, Vfs, VfsLayer},
};
use parking_lot::{Condvar, Mutex};
use std::{io, path::Path, sync::Arc, thread, time::Duration};

const PATIENCE: Duration = Duration::from_secs(30);
const READS: usize = 8;

#[derive(Debug, Default)]
struct Gate {
    is_held: bool,
    opened: usize,
    waiting: usize,
}

/// Its reads of blobs, and the opens before them, wait on demand.
#[derive(Clone, Debug)]
struct HeldDisk {
    inner: Arc<dyn Vfs>,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn File>,
    disk: HeldDisk,
}

impl HeldDisk {
    fn pass(&self) {
        let (gate, changed) = &*self.gate;
        let mut held = gate.lock();
        held.waiting += usize::from(held.is_held);
        changed.notify_all();
        changed.wait_while_for(&mut held, |gate| gate.is_held, PATIENCE);
    }

    fn set_held(&self, is_held: bool) {
        self.gate.0.lock().is_held = is_held;
        self.gate.1.notify_all();
    }

    /// Returns the calls that wait, once there are as many or after some time.
    fn await_calls(&self, count: usize) -> usize {
        let (gate, changed) = &*self.gate;
        let mut gate = gate.lock();
        changed.wait_while_for(&mut gate, |gate| gate.waiting < count, Duration::from_secs(5));
        gate.waiting
    }
}

impl VfsLayer for HeldDisk {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        if path.extension().is_none_or(|extension| extension != "blob") || mode != OpenMode::Read {
            return Ok(inner);
        }
        self.gate.0.lock().opened += 1;
        self.pass();
        Ok(Arc::new(HeldFile { inner, disk: self.clone() }))
    }
}

impl FileLayer for HeldFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.pass();
        self.inner.read_at(buf, offset)
    }
}

#[test]
fn open_of_blob_file_blocks_no_other_read() {
    let disk = HeldDisk { inner: mem(), gate: Arc::default() };
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let db = open(Settings { blob_file_bytes: 1 << 20, read_in_place: false, ..small(&vfs) }).unwrap();
    let tree = db.tree("t").unwrap();
    for read in 0..READS {
        tree.put(format!("cold{read}"), vec![7; 2_000]).unwrap();
    }
    tree.put("hot", "in memory").unwrap();
    disk.set_held(true);
    thread::scope(|scope| {
        let cold: Vec<_> = (0..READS).map(|read| (read, tree.clone())).collect();
        let cold: Vec<_> = cold
            .into_iter()
            .map(|(read, tree)| scope.spawn(move || tree.get(format!("cold{read}")).unwrap().unwrap()))
            .collect();
        let waiting = disk.await_calls(READS);
        assert_eq!(tree.get("hot").unwrap().unwrap(), "in memory");
        disk.set_held(false);
        for read in cold {
            assert_eq!(read.join().unwrap().to_vec(), vec![7; 2_000]);
        }
        assert_eq!(waiting, READS, "each waits for the disk, and none for another read");
    });
    assert!(disk.gate.0.lock().opened >= 1);
}
