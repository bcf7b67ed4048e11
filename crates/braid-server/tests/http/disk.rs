//! A slow disk stalls only the requests that wait for it.

use crate::client::{Client, Running};
use braiddb::{
    Db,
    platform::{File, FileLayer, MemVfs, OpenMode, ReadMapping, Vfs, VfsLayer},
};
use std::{
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

/// Fails a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    BlobRead,
    BlobSync,
    LogSync,
}

#[derive(Debug, Default)]
struct Gate {
    held: Vec<Call>,
    /// Calls that began since the hold.
    began: Vec<Call>,
}

/// A file system whose blob reads and syncs wait on demand.
#[derive(Clone, Debug)]
struct HeldDisk {
    inner: Arc<MemVfs>,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Debug)]
struct HeldFile {
    inner: Arc<dyn File>,
    disk: HeldDisk,
    is_log: bool,
}

impl HeldDisk {
    fn open() -> (HeldDisk, Db) {
        let disk = HeldDisk { inner: Arc::new(MemVfs::new()), gate: Arc::default() };
        let builder = Db::builder().create_parents(true).memory(8 << 20).blob_threshold(1000);
        let db = builder.vfs(Arc::new(disk.clone())).open("/db").unwrap();
        (disk, db)
    }

    fn hold(&self, held: &[Call]) {
        *self.gate.0.lock().unwrap() = Gate { held: held.to_vec(), began: Vec::new() };
    }

    fn release(&self) {
        self.gate.0.lock().unwrap().held.clear();
        self.gate.1.notify_all();
    }

    fn count(&self, call: Call) -> usize {
        self.gate.0.lock().unwrap().began.iter().filter(|began| **began == call).count()
    }

    #[track_caller]
    fn await_calls(&self, call: Call, count: usize) {
        let (gate, changed) = &*self.gate;
        let is_short = |gate: &mut Gate| gate.began.iter().filter(|began| **began == call).count() < count;
        let waited = changed.wait_timeout_while(gate.lock().unwrap(), PATIENCE, is_short).unwrap();
        assert!(!waited.1.timed_out(), "of {count} only {:?} began", waited.0.began);
    }

    fn pass(&self, call: Call) {
        let (gate, changed) = &*self.gate;
        let mut held = gate.lock().unwrap();
        held.began.push(call);
        changed.notify_all();
        drop(changed.wait_timeout_while(held, PATIENCE, |gate| gate.held.contains(&call)).unwrap());
    }
}

/// The thread of a dump outlived its turn: clients that came and went had more of them than the limit.
#[test]
fn backup_of_a_gone_client_keeps_its_turn_until_its_thread_ends() {
    let (disk, db) = HeldDisk::open();
    // More than the part that answers the request, before the first value in a blob file.
    let first = db.tree("a").unwrap();
    for number in 0..1000_u64 {
        let noise = (0..40).flat_map(|at| ((number * 40 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        first.put(number.to_be_bytes(), noise.collect::<Vec<u8>>()).unwrap();
    }
    let second = db.tree("b").unwrap();
    second
        .put("blob", (0..100_000_u32).flat_map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect::<Vec<u8>>())
        .unwrap();
    let server = Running::limited(&db, |limits| limits.backups = 1);
    disk.hold(&[Call::BlobRead]);
    let mut client = server.connect();
    client.send_head("GET", "/backup", &[]);
    assert_eq!(client.read_head().unwrap().status, 200);
    disk.await_calls(Call::BlobRead, 1);
    drop(client);
    let running = || {
        let metrics = server.get("/metrics").has(200);
        metrics.text().lines().find_map(|line| line.strip_prefix("braiddb_http_backups ").map(str::to_owned)).unwrap()
    };
    for _ in 0..200 {
        assert_eq!(running(), "1", "the thread still reads");
    }
    disk.release();
    let began = std::time::Instant::now();
    while running() != "0" {
        assert!(began.elapsed() < PATIENCE, "the turn is not given back");
    }
}

impl VfsLayer for HeldDisk {
    fn inner(&self) -> &dyn Vfs {
        &*self.inner
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, mode)?;
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !["wal", "blob"].contains(&ending) {
            return Ok(inner);
        }
        Ok(Arc::new(HeldFile { inner, disk: self.clone(), is_log: ending == "wal" }))
    }
}

impl FileLayer for HeldFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        if !self.is_log {
            self.disk.pass(Call::BlobRead);
        }
        self.inner.read_at(into, at)
    }
    fn map_for_reading(&self, _: u64) -> io::Result<Option<ReadMapping>> {
        Ok(None)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.disk.pass(if self.is_log { Call::LogSync } else { Call::BlobSync });
        self.inner.sync_data()
    }
    fn sync_bytes(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.disk.pass(if self.is_log { Call::LogSync } else { Call::BlobSync });
        self.inner.sync_bytes(bytes, at)
    }
}

/// More reads wait for the disk than there are workers; other connections are answered.
#[test]
fn reads_that_wait_for_the_disk_stall_no_other_connection() {
    const READS: usize = 24;
    let (disk, db) = HeldDisk::open();
    let tree = db.tree("t").unwrap();
    tree.put("hot", "in memory").unwrap();
    for read in 0..READS {
        tree.put(format!("cold{read}"), vec![7; 20_000]).unwrap();
    }
    let server = Running::writable(&db);
    let mut hot = server.connect();
    // The first read opens the blob file, under a lock.
    server.get("/trees/t/cold0").has(200);
    // A slow call, such as a first one, sends the next ones to the pool for a while.
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        hot.ask("GET", "/trees/t/hot", &[], b"").has(200);
    }
    disk.hold(&[Call::BlobRead]);
    let mut cold: Vec<Client> = (0..READS).map(|_| server.connect()).collect();
    for (read, client) in cold.iter_mut().enumerate() {
        client.send("GET", &format!("/trees/t/cold{read}"), &[], b"");
        // One by one: the worker that waits for the sockets stalls first, while the others sleep.
        disk.await_calls(Call::BlobRead, read + 1);
    }
    for _ in 0..10 {
        assert_eq!(hot.ask("GET", "/trees/t/hot", &[], b"").has(200).text(), "in memory");
        server.get("/health").has(200);
    }
    disk.release();
    for client in &mut cold {
        assert_eq!(client.reply("GET").has(200).body, vec![7; 20_000]);
    }
}

/// Puts of many connections are applied at once and share syncs.
#[test]
fn durable_puts_share_syncs_and_hold_no_thread() {
    const PUTS: usize = 200;
    let (disk, db) = HeldDisk::open();
    let tree = db.tree("t").unwrap();
    let server = Running::writable(&db);
    server.put("/trees/t/first", "v").has(201);
    disk.hold(&[Call::LogSync]);
    let mut clients: Vec<Client> = (0..PUTS).map(|_| server.connect()).collect();
    for (put, client) in clients.iter_mut().enumerate() {
        client.send("PUT", &format!("/trees/t/{put}"), &[], b"v");
    }
    let began = std::time::Instant::now();
    while tree.len().unwrap() < PUTS as u64 + 1 {
        assert!(began.elapsed() < PATIENCE, "only {} puts are applied", tree.len().unwrap());
        std::thread::yield_now();
    }
    server.get("/trees/t/0").has(200);
    disk.await_calls(Call::LogSync, 1);
    for client in &clients {
        let socket = client.stream.get_ref();
        socket.set_nonblocking(true).unwrap();
        let early = socket.peek(&mut [0]);
        assert_eq!(early.unwrap_err().kind(), io::ErrorKind::WouldBlock, "answered before the sync");
        socket.set_nonblocking(false).unwrap();
    }
    disk.release();
    for client in &mut clients {
        client.reply("PUT").has(201);
    }
    let syncs = disk.count(Call::LogSync);
    assert!((1..10).contains(&syncs), "{syncs} syncs for {PUTS} puts");
}

/// The story: the log sync of a large put synced its files too, and all other writes waited.
#[test]
fn sync_of_a_large_value_delays_no_other_write() {
    let (disk, db) = HeldDisk::open();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    server.put("/trees/t/first", "v").has(201);
    disk.hold(&[Call::BlobSync]);
    let mut large = server.connect();
    large.send("PUT", "/trees/t/large", &[], &vec![1; 3_000_000]);
    disk.await_calls(Call::BlobSync, 1);
    let mut small = server.connect();
    // The disk holds its calls for longer.
    small.stream.get_ref().set_read_timeout(Some(PATIENCE / 2)).unwrap();
    small.ask("PUT", "/trees/t/small", &[], b"v").has(201);
    disk.release();
    large.reply("PUT").has(201);
}

/// A batch has a multiple of its body in memory until its commit.
#[test]
fn large_batch_keeps_its_turn_until_the_commit() {
    let (disk, db) = HeldDisk::open();
    db.tree("t").unwrap();
    let server = Running::writable(&db);
    let value = "v".repeat(200_000);
    let batch = serde_json::json!([{"op": "put", "tree": "t", "key": "k", "value": value}]);
    disk.hold(&[Call::LogSync]);
    let mut client = server.connect();
    client.send("POST", "/batch", &[], batch.to_string().as_bytes());
    disk.await_calls(Call::LogSync, 1);
    server.await_uploads(1);
    disk.release();
    client.reply("POST").has(200);
    server.await_uploads(0);
}
