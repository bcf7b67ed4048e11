//! Backups, log archives and checkpoints in an S3 server, through a proxy that fails requests.
//!
//! `scripts/check-object-store.sh` starts servers and runs these tests. They need
//! `BRAIDDB_S3_ENDPOINT` (`http://ADDRESS`), a bucket of the name `braiddb`, and credentials in the
//! environment. `BRAIDDB_SEED` chooses the failures.
#![cfg(feature = "s3")]

mod proxy;

use braiddb::{
    Builder, Db, Tree,
    backup::{ArchiveCopies, BackupInfo, Backups, RestorePoint, Retention},
    platform::{MemVfs, Runtime, SystemRuntime, UNIX_EPOCH, Vfs},
};
use braiddb_object_store::{Checkpoints, ObjectStoreTarget, S3, TargetOptions};
use proxy::Proxy;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

const BIG_VALUE: usize = 12 << 20;

/// A clock that is ahead, so that the leases of others look expired.
#[derive(Debug)]
struct Ahead(u64, SystemRuntime);

impl Runtime for Ahead {
    fn unix_time_us(&self) -> u64 {
        self.1.unix_time_us() + self.0
    }
    fn monotonic_ns(&self) -> u64 {
        self.1.monotonic_ns()
    }
    fn random_u64(&self) -> u64 {
        self.1.random_u64()
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        self.1.spawn(name, body)
    }
    fn sleep_us(&self, micros: u64) {
        self.1.sleep_us(micros);
    }
    fn process_name(&self) -> String {
        self.1.process_name()
    }
}

fn server() -> Option<String> {
    let endpoint = std::env::var("BRAIDDB_S3_ENDPOINT").ok();
    if endpoint.is_none() {
        eprintln!("SKIPPED: BRAIDDB_S3_ENDPOINT is not set, see scripts/check-object-store.sh");
    }
    endpoint
}

fn seed() -> u64 {
    std::env::var("BRAIDDB_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A new prefix for each test and run.
fn prefix(test: &str) -> String {
    format!("s3://braiddb/{test}/{:016x}", SystemRuntime::new().random_u64())
}

fn open(place: &str, endpoint: &str, ahead_us: u64) -> ObjectStoreTarget {
    let options = TargetOptions::new()
        .runtime(Arc::new(Ahead(ahead_us, SystemRuntime::new())))
        .part_bytes(5 << 20)
        .request_time(Duration::from_millis(1500), Duration::from_secs(20));
    S3::parse(place).unwrap().endpoint(endpoint).open(options).unwrap()
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

struct World {
    vfs: Arc<dyn Vfs>,
    db: Db,
    tree: Tree,
    states: Mutex<BTreeMap<u64, Records>>,
    round: Mutex<u64>,
}

fn records(tree: &Tree) -> Records {
    tree.iter().map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

impl World {
    fn new() -> Arc<World> {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let db = Builder::new().vfs(Arc::clone(&vfs)).log_archive("/archive").open("/music.db").unwrap();
        let tree = db.tree("albums").unwrap();
        Arc::new(World { vfs, db, tree, states: Mutex::default(), round: Mutex::new(0) })
    }

    fn change(&self) {
        let mut round = self.round.lock().unwrap();
        *round += 1;
        for i in 0..30_u64 {
            let value = format!("{} of round {}", i * *round, *round).repeat(20);
            self.tree.put(format!("{:03}", (i * 7 + *round) % 101), value).unwrap();
        }
        self.states.lock().unwrap().insert(self.db.snapshot().sequence(), records(&self.tree));
    }

    /// One value takes several parts of an upload.
    fn put_big(&self) {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        };
        let value: Vec<u8> = (0..BIG_VALUE).map(|_| next()).collect();
        self.tree.put("big", value).unwrap();
    }

    fn check(&self, target: &ObjectStoreTarget, info: &BackupInfo) {
        let vfs = Arc::new(MemVfs::new());
        let builder = || Builder::new().vfs(vfs.clone());
        builder().restore(target, Some(info.id), "/restored.db").unwrap();
        let restored = builder().open("/restored.db").unwrap();
        let found = records(&restored.open_tree("albums").unwrap());
        assert!(self.states.lock().unwrap()[&info.sequence] == found, "backup {} has other records", info.id);
    }
}

#[test]
fn acknowledged_backups_restore_exactly_behind_a_failing_network() {
    let Some(server) = server() else { return };
    let (world, place, proxy) = (World::new(), prefix("single"), Proxy::start(&server, seed(), 12));
    let target = open(&place, &proxy.endpoint(), 0);
    world.put_big();
    let mut acknowledged = Vec::new();
    for _ in 0..12 {
        world.change();
        if let Ok(info) = world.db.backup(&target) {
            acknowledged.push(info);
        }
    }
    assert!(proxy.failures() > 5, "{} failures only", proxy.failures());
    assert!(acknowledged.len() > 4, "{} of 12 backups only", acknowledged.len());
    let direct = open(&place, &server, 3_600_000_000);
    let backups = Backups::new(&direct);
    let report = backups.verify(None).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let listed = backups.list().unwrap();
    for info in &acknowledged {
        assert!(listed.contains(info), "backup {} is lost", info.id);
        world.check(&direct, info);
    }
    let deleted = backups.retain(Retention::new().keep(1), UNIX_EPOCH).unwrap();
    assert_eq!(deleted.len(), listed.len() - 1);
    world.check(&direct, listed.last().unwrap());
}

/// Each writer finds the other's lease expired all the time.
#[test]
fn two_writers_that_take_the_lock_from_each_other_keep_all_backups_whole() {
    let Some(server) = server() else { return };
    let (world, place) = (World::new(), prefix("two"));
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..2_u64)
        .map(|writer| {
            let (world, place, acknowledged) = (Arc::clone(&world), place.clone(), Arc::clone(&acknowledged));
            let server = server.clone();
            let write = move || {
                let proxy = Proxy::start(&server, seed() + writer, 6);
                for round in 0..12_u64 {
                    let ahead = (2 * round + writer) * 3_600_000_000;
                    let target = open(&place, &proxy.endpoint(), ahead);
                    world.change();
                    if let Ok(info) = world.db.backup(&target) {
                        acknowledged.lock().unwrap().push(info);
                    }
                }
            };
            SystemRuntime::new().spawn("writer", Box::new(write)).unwrap()
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let direct = open(&place, &server, 1_000 * 3_600_000_000);
    let report = Backups::new(&direct).verify(None).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let listed = Backups::new(&direct).list().unwrap();
    let acknowledged = acknowledged.lock().unwrap();
    assert!(acknowledged.len() > 4, "{} of 24 backups only", acknowledged.len());
    for info in acknowledged.iter() {
        assert!(listed.contains(info), "backup {} is lost", info.id);
    }
    eprintln!("{} of 24 backups were acknowledged, {} are listed", acknowledged.len(), listed.len());
}

#[test]
fn archive_and_checkpoint_lead_a_new_node_to_the_last_commit() {
    let Some(server) = server() else { return };
    let (world, place, proxy) = (World::new(), prefix("node"), Proxy::start(&server, seed(), 8));
    let until_done = |what: &mut dyn FnMut() -> bool| assert!((0..40).any(|_| what()));
    let target = open(&place, &proxy.endpoint(), 0);
    let log = open(&format!("{place}/log"), &proxy.endpoint(), 0);
    let checkpoints = Checkpoints::new(target.clone());
    world.put_big();
    for _ in 0..3 {
        world.change();
        until_done(&mut || checkpoints.publish(&world.db).is_ok());
    }
    world.change();
    let last = world.db.archive_now().unwrap();
    let (life, copies) = (world.db.incarnation(), ArchiveCopies::new(&log).vfs(Arc::clone(&world.vfs)));
    until_done(&mut || copies.copy("/archive", life).is_ok());

    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let installer = checkpoints.clone().vfs(Arc::clone(&vfs));
    let mut installed = None;
    until_done(&mut || {
        installed = installer.install_newest("/node.db").ok();
        installed.is_some()
    });
    let installed = installed.unwrap();
    let node = Builder::new().vfs(Arc::clone(&vfs)).open("/node.db").unwrap();
    let wanted = &world.states.lock().unwrap()[&installed.sequence];
    assert!(records(&node.open_tree("albums").unwrap()) == *wanted);

    let copies = ArchiveCopies::new(&log).vfs(Arc::clone(&vfs));
    until_done(&mut || copies.fetch(life, installed.sequence, "/fetched").is_ok());
    until_done(&mut || {
        let builder = Builder::new().vfs(Arc::clone(&vfs));
        let restored = builder.restore_to(&target, "/fetched", RestorePoint::Latest, "/latest.db");
        restored.is_ok_and(|restored| restored.sequence == last)
    });
    let latest = Builder::new().vfs(vfs).open("/latest.db").unwrap();
    assert!(records(&latest.open_tree("albums").unwrap()) == records(&world.tree));
}
