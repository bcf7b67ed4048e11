//! Two writers at one bucket: each backup that was acknowledged restores exactly, and no torn one
//! is restored, at whatever request a writer is suspended and whatever fails.

use crate::{
    CheckpointInfo, Checkpoints, ObjectStoreTarget, TargetOptions,
    faulty::{Bucket, Fault, Faulty, Moment},
};
use braiddb::{
    Builder, Db, Error, Result, Tree,
    backup::{BackupInfo, BackupTarget, Backups, DirectoryTarget, Retention},
    platform::{MemVfs, Runtime, SystemRuntime, UNIX_EPOCH, Vfs},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

const PREFIX: &str = "backups/music";
const HOUR_US: u64 = 3_600_000_000;

/// A clock that is ahead, so that it finds the leases of others expired.
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
        format!("process {} h ahead", self.0 / HOUR_US)
    }
}

fn target(store: Arc<Faulty>, hours_ahead: u64) -> ObjectStoreTarget {
    let runtime = Arc::new(Ahead(hours_ahead * HOUR_US, SystemRuntime::new()));
    let options = TargetOptions::new()
        .runtime(runtime)
        .part_bytes(1 << 10)
        .request_time(Duration::from_millis(40), Duration::from_secs(3));
    ObjectStoreTarget::open(store, PREFIX, options).unwrap()
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

struct World {
    db: Db,
    tree: Tree,
    /// The records after each backed up commit.
    states: Mutex<BTreeMap<u64, Records>>,
    round: Mutex<u64>,
}

impl World {
    fn new() -> Arc<World> {
        let db = Builder::new().vfs(Arc::new(MemVfs::new())).open("/music.db").unwrap();
        let tree = db.tree("albums").unwrap();
        Arc::new(World { db, tree, states: Mutex::default(), round: Mutex::new(0) })
    }

    /// Changes some records, and remembers the state.
    fn change(&self) {
        let mut round = self.round.lock().unwrap();
        *round += 1;
        for i in 0..40_u64 {
            let value = format!("{} of round {}", i * *round, *round).repeat(9);
            self.tree.put(format!("{:03}", (i * 7 + *round) % 101).as_bytes(), value.as_bytes()).unwrap();
        }
        self.states.lock().unwrap().insert(self.db.snapshot().sequence(), records(&self.tree));
    }

    fn backup(&self, target: &ObjectStoreTarget) -> Result<BackupInfo> {
        self.db.backup(target)
    }

    fn check_restores(&self, target: &ObjectStoreTarget, id: u64, sequence: u64, context: &str) {
        let vfs = Arc::new(MemVfs::new());
        let builder = || Builder::new().vfs(vfs.clone());
        builder().restore(target, Some(id), "/restored.db").unwrap_or_else(|e| panic!("{context}: backup {id}: {e}"));
        let restored = builder().open("/restored.db").unwrap();
        let found = records(&restored.open_tree("albums").unwrap());
        assert!(self.states.lock().unwrap()[&sequence] == found, "{context}: backup {id} has other records");
    }
}

fn records(tree: &Tree) -> Records {
    tree.iter().map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn keep_one(target: &ObjectStoreTarget) -> Result<Vec<u64>> {
    Backups::new(target).retain(Retention::new().keep(1), UNIX_EPOCH)
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Backup,
    BackupTwice,
    BackupAndKeepOne,
    KeepOne,
    KeepOneAndBackup,
}

const ACTIONS: [Action; 5] =
    [Action::Backup, Action::BackupTwice, Action::BackupAndKeepOne, Action::KeepOne, Action::KeepOneAndBackup];

/// Results that the calls returned.
#[derive(Default)]
struct Acknowledged {
    made: BTreeMap<u64, u64>,
    deleted: BTreeSet<u64>,
    /// A retention failed, and may have deleted anything but the newest one.
    is_unknown: bool,
}

fn act(world: &World, target: &ObjectStoreTarget, action: Action, acknowledged: &Mutex<Acknowledged>) {
    let backup = || {
        world.change();
        if let Ok(info) = world.backup(target) {
            let other = acknowledged.lock().unwrap().made.insert(info.id, info.sequence);
            assert_eq!(other, None, "id {} was given twice", info.id);
        }
    };
    let keep = || match keep_one(target) {
        Ok(ids) => acknowledged.lock().unwrap().deleted.extend(ids),
        Err(_) => acknowledged.lock().unwrap().is_unknown = true,
    };
    match action {
        Action::Backup => backup(),
        Action::BackupTwice => (backup(), backup()).0,
        Action::BackupAndKeepOne => (backup(), keep()).0,
        Action::KeepOne => keep(),
        Action::KeepOneAndBackup => (keep(), backup()).0,
    }
}

/// Checks that every visible backup is whole, that no acknowledged one is lost, and that the next
/// process can go on.
fn check(world: &World, bucket: &Arc<Bucket>, acknowledged: &Acknowledged, context: &str) {
    let last = target(Faulty::faultless(bucket), 9);
    for is_repaired in [false, true] {
        if is_repaired {
            world.change();
            world.backup(&last).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert!(!bucket.names().iter().any(|name| name.ends_with(".begun")), "{context}");
        }
        let listed = Backups::new(&last).list().unwrap_or_else(|e| panic!("{context}: {e}"));
        let report = Backups::new(&last).verify(None).unwrap();
        assert!(report.problems.is_empty(), "{context}: {:?}", report.problems);
        for info in &listed {
            let wanted = acknowledged.made.get(&info.id).copied().unwrap_or(info.sequence);
            assert_eq!(info.sequence, wanted, "{context}: backup {}", info.id);
            world.check_restores(&last, info.id, info.sequence, context);
        }
        let newest = acknowledged.made.keys().max();
        for id in acknowledged.made.keys().filter(|id| !acknowledged.deleted.contains(id)) {
            let may_be_gone = acknowledged.is_unknown && Some(id) != newest;
            assert!(may_be_gone || listed.iter().any(|info| info.id == *id), "{context}: backup {id} is lost");
        }
    }
}

struct Setup {
    world: Arc<World>,
    bucket: Arc<Bucket>,
    made: BTreeMap<u64, u64>,
}

fn setup() -> Setup {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let first = target(Faulty::faultless(&bucket), 0);
    let mut made = BTreeMap::new();
    for _ in 0..2 {
        world.change();
        let info = world.backup(&first).unwrap();
        made.insert(info.id, info.sequence);
    }
    Setup { world, bucket, made }
}

/// Suspends one process at a request, and lets another act, which finds the lease expired.
fn run_suspended(setup: &Setup, first: Action, second: Action, request: u64, moment: Moment) -> u64 {
    let context = format!("{first:?} suspended {moment:?} request {request} for {second:?}");
    let bucket = setup.bucket.copy();
    let acknowledged = Arc::new(Mutex::new(Acknowledged { made: setup.made.clone(), ..Acknowledged::default() }));
    let store = Faulty::faultless(&bucket);
    let second_store = Faulty::faultless(&bucket);
    let (a, b) = (target(Arc::clone(&store), 0), target(Arc::clone(&second_store), 2));
    let (world, results) = (Arc::clone(&setup.world), Arc::clone(&acknowledged));
    store.stall(request, moment, move || act(&world, &b, second, &results));
    act(&setup.world, &a, first, &acknowledged);
    // On a busy machine the first gives up before the second is done.
    for store in [&store, &second_store] {
        store.settle();
    }
    check(&setup.world, &bucket, &acknowledged.lock().unwrap(), &context);
    store.requests()
}

fn run_all_suspensions(first: Action) {
    let setup = setup();
    let mut runs = 0;
    for second in ACTIONS {
        let (mut request, mut requests) = (0, 1);
        while request < requests {
            requests = requests.max(run_suspended(&setup, first, second, request, Moment::Before));
            runs += 1;
            request += 1;
        }
    }
    assert!(runs > 50, "{runs} runs only");
}

#[test]
fn backup_suspended_at_each_request_keeps_all_backups_whole() {
    run_all_suspensions(Action::Backup);
}

#[test]
fn retention_suspended_at_each_request_keeps_all_backups_whole() {
    run_all_suspensions(Action::KeepOne);
}

#[test]
fn backup_and_retention_suspended_at_each_request_keep_all_backups_whole() {
    run_all_suspensions(Action::BackupAndKeepOne);
}

/// A generator of Steele, Lea and Flood (2014).
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn faults(seed: u64) -> impl Fn(u64) -> Fault + Send + Sync + 'static {
    // From no fault to one in three requests.
    let rate = mix(seed) % 33;
    move |request| {
        let draw = mix(seed ^ mix(request));
        match draw % 100 {
            roll if roll >= rate => Fault::None,
            _ => [Fault::Refused, Fault::Refused, Fault::ReplyLost, Fault::ReplyLost, Fault::Late]
                [(draw >> 32) as usize % 5],
        }
    }
}

#[test]
fn two_writers_with_faults_keep_all_backups_whole() {
    let volume: f64 = std::env::var("BRAIDDB_VOLUME").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let first_seed: u64 = std::env::var("BRAIDDB_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let setup = setup();
    for seed in first_seed..first_seed + (60.0 * volume).ceil() as u64 {
        let pick = |salt: u64| ACTIONS[(mix(seed ^ (salt << 50)) % 5) as usize];
        let (first, second) = (pick(1), pick(2));
        let moment = if seed % 2 == 0 { Moment::Before } else { Moment::After };
        let request = mix(seed ^ (3 << 50)) % 40;
        let context = format!("BRAIDDB_SEED={seed}: {first:?}, {second:?} {moment:?} request {request}");
        let bucket = setup.bucket.copy();
        let acknowledged = Arc::new(Mutex::new(Acknowledged { made: setup.made.clone(), ..Acknowledged::default() }));
        let store = Faulty::new(&bucket, faults(seed));
        let second_store = Faulty::new(&bucket, faults(!seed));
        let (a, b) = (target(Arc::clone(&store), 0), target(Arc::clone(&second_store), 2));
        let (world, results) = (Arc::clone(&setup.world), Arc::clone(&acknowledged));
        store.stall(request, moment, move || act(&world, &b, second, &results));
        act(&setup.world, &a, first, &acknowledged);
        drop(a);
        for store in [&store, &second_store] {
            store.settle();
        }
        check(&setup.world, &bucket, &acknowledged.lock().unwrap(), &context);
    }
}

fn plain(bucket: &Arc<Bucket>) -> ObjectStoreTarget {
    target(Faulty::faultless(bucket), 0)
}

fn read_all(target: &ObjectStoreTarget, name: &str) -> Result<Vec<u8>> {
    let (mut reader, mut all, mut buffer) = (target.get(name)?, Vec::new(), [0; 700]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(all),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

#[test]
fn objects_of_all_lengths_are_read_as_written() {
    let bucket = Arc::new(Bucket::default());
    let target = plain(&bucket);
    for len in [0_usize, 1, 1023, 1024, 1025, 2048, 10_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
        let name = format!("{len}.run");
        let mut writer = target.put(&name).unwrap();
        bytes.chunks(333).for_each(|piece| writer.write(piece).unwrap());
        assert_eq!(bucket.get(&format!("{PREFIX}/{name}")), None, "unfinished objects are not visible");
        writer.finish().unwrap();
        assert_eq!(read_all(&target, &name).unwrap(), bytes);
        assert!(target.list().unwrap().iter().any(|object| object.name == name && object.len == len as u64));
        target.delete(&name).unwrap();
        assert!(read_all(&target, &name).unwrap_err().is_not_found());
    }
    assert_eq!(target.list().unwrap(), []);
}

#[test]
fn lists_have_neither_other_prefixes_nor_the_lease_nor_placeholders() {
    let bucket = Arc::new(Bucket::default());
    let target = plain(&bucket);
    let _lock = target.lock().unwrap();
    let mut placeholder = b"braiddb placeholder\n".to_vec();
    placeholder.extend_from_slice(&[7; 16]);
    bucket.insert(&format!("{PREFIX}/000001.backup"), placeholder.clone());
    bucket.insert(&format!("{PREFIX}/000002.backup"), vec![7; placeholder.len()]);
    bucket.insert(&format!("{PREFIX}/below/000003.backup"), vec![7]);
    bucket.insert("backups/musical/000004.backup", vec![7]);
    bucket.insert("backups/000005.backup", vec![7]);
    let names: Vec<String> = target.list().unwrap().into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["000002.backup"]);
}

#[test]
fn lock_excludes_others_until_it_is_dropped_or_expires() {
    let bucket = Arc::new(Bucket::default());
    let (first, second, later) = (plain(&bucket), plain(&bucket), target(Faulty::faultless(&bucket), 1));
    let lock = first.lock().unwrap();
    for other in [&first, &second] {
        let refused = other.lock().unwrap_err();
        assert!(refused.is_locked() && refused.is_retryable(), "{refused}");
        // It is no database: its name and owner suffice.
        assert!(refused.to_string().contains("is in use by"), "{refused}");
    }
    drop(lock);
    let lock = second.lock().unwrap();
    let id = lock.reserve(1).unwrap();
    // The clock of this one is past the end of the lease.
    let taken = later.lock().unwrap();
    assert_eq!(taken.reserve(1).unwrap(), id + 1, "ids are not given twice");
    let lost = second.publish("000007.backup", b"late").unwrap_err();
    assert!(lost.to_string().contains("1 h ahead") && lost.to_string().contains("run it again"), "{lost}");
    assert!(second.list().is_err(), "a list for deletions must fail");
    drop((lock, taken));
    assert_eq!(first.lock().unwrap().reserve(40).unwrap(), 40);
    assert_eq!(first.lock().unwrap().reserve(1).unwrap(), 41);
}

#[test]
fn lock_is_renewed_while_it_is_held() {
    let bucket = Arc::new(Bucket::default());
    let options = TargetOptions::new().lease_time(Duration::from_secs(1));
    let target = ObjectStoreTarget::open(Faulty::faultless(&bucket), PREFIX, options).unwrap();
    let _lock = target.lock().unwrap();
    let lease = || String::from_utf8(bucket.get(&format!("{PREFIX}/lease")).unwrap().to_vec()).unwrap();
    let first = lease();
    let until = std::time::Duration::from_secs(20);
    let runtime = SystemRuntime::new();
    let begun = runtime.monotonic_ns();
    while lease() == first {
        assert!(runtime.monotonic_ns() - begun < until.as_nanos() as u64, "the lease was not renewed: {first}");
        runtime.sleep_us(10_000);
    }
    assert!(lease().contains("revision 1"), "{}", lease());
}

#[test]
fn call_fails_after_the_time_of_a_request_and_says_why() {
    let bucket = Arc::new(Bucket::default());
    let options = TargetOptions::new().request_time(Duration::from_millis(20), Duration::from_millis(200));
    let store = Faulty::new(&bucket, |_| Fault::Refused);
    let target = ObjectStoreTarget::open_as(store, PREFIX, "s3://bucket", options).unwrap();
    let error = target.list().unwrap_err().to_string();
    for part in ["list s3://bucket/backups/music", "503", "check the address"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(target.lock().is_err());
}

#[test]
fn options_out_of_range_and_bad_prefixes_are_refused() {
    let bucket = Arc::new(Bucket::default());
    let open = |prefix: &str, options| ObjectStoreTarget::open(Faulty::faultless(&bucket), prefix, options);
    for options in [
        TargetOptions::new().part_bytes(10),
        TargetOptions::new().parallel(0),
        TargetOptions::new().parallel(65),
        TargetOptions::new().lease_time(Duration::from_millis(999)),
    ] {
        assert!(open("a", options).is_err_and(|e| e.is_invalid_argument()));
    }
    assert!(open("a//b", TargetOptions::new()).is_err_and(|e| e.is_invalid_argument()));
    assert!(open("/a/", TargetOptions::new()).is_ok() && open("", TargetOptions::new()).is_ok());
}

/// Blocking calls of a runtime's own kind panic inside of another one.
#[test]
fn calls_inside_of_an_async_runtime_work() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let target = plain(&Arc::new(Bucket::default()));
        drop(target.lock().unwrap());
        assert_eq!(target.list().unwrap(), []);
    });
}

#[test]
fn unknown_lease_is_refused_with_advice() {
    let bucket = Arc::new(Bucket::default());
    bucket.insert(&format!("{PREFIX}/lease"), "something else");
    let refused = plain(&bucket).lock().unwrap_err();
    assert!(matches!(refused, Error::BackupDamaged { .. }) && refused.to_string().contains("rename it"), "{refused}");
}

#[test]
fn store_without_conditional_writes_holds_backups_without_a_lock() {
    let bucket = Arc::new(Bucket::default());
    let options = TargetOptions::new().conditional_writes(false);
    let target = ObjectStoreTarget::open(Faulty::faultless(&bucket), PREFIX, options).unwrap();
    let world = World::new();
    world.change();
    let info = world.backup(&target).unwrap();
    world.check_restores(&target, info.id, info.sequence, "without a lock");
    assert!(!bucket.names().iter().any(|name| name.ends_with("lease")));
}

/// `aws s3 sync` is a way to bring backups elsewhere.
#[test]
fn copied_objects_are_backups_in_a_directory() {
    let bucket = Arc::new(Bucket::default());
    let (world, target) = (World::new(), plain(&bucket));
    world.change();
    let info = world.backup(&target).unwrap();
    let vfs = Arc::new(MemVfs::new());
    let directory = braiddb::backup::DirectoryTarget::open_in(vfs.clone(), "/copy").unwrap();
    for object in target.list().unwrap() {
        let mut writer = directory.put(&object.name).unwrap();
        writer.write(&read_all(&target, &object.name).unwrap()).unwrap();
        writer.finish().unwrap();
    }
    assert_eq!(Backups::new(&directory).list().unwrap(), [info]);
    assert!(Backups::new(&directory).verify(None).unwrap().problems.is_empty());
}

/// Downloads of a killed installation, complete and not, and files of an older checkpoint.
#[test]
fn install_goes_on_after_failures_and_installs_the_newest_checkpoint() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let publisher = Checkpoints::new(plain(&bucket));
    for round in 0..4 {
        world.change();
        let info = publisher.publish(&world.db).unwrap();
        assert!(round == 0 || info.bytes_copied < info.bytes, "{info:?}");
    }
    let listed = Backups::new(&plain(&bucket)).list().unwrap();
    assert_eq!(listed.len(), 2, "older checkpoints are deleted");
    let newest = listed.last().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let mut failures = 0;
    // Each call gets some requests further.
    let installed = loop {
        let limit = 7 + failures;
        let store = Faulty::new(&bucket, move |request| if request < limit { Fault::None } else { Fault::Refused });
        let options = TargetOptions::new().request_time(Duration::from_millis(10), Duration::from_millis(30));
        let target = ObjectStoreTarget::open(store, PREFIX, options).unwrap();
        match Checkpoints::new(target).vfs(Arc::clone(&vfs)).install_newest("/node.db") {
            Ok(info) => break info,
            Err(_) => failures += 1,
        }
        assert!(Builder::new().vfs(Arc::clone(&vfs)).create(false).open("/node.db").is_err());
        assert!(failures < 200);
    };
    assert!(failures > 3, "{failures} failures only");
    assert_eq!(installed.sequence, newest.sequence);
    let node = Builder::new().vfs(Arc::clone(&vfs)).open("/node.db").unwrap();
    assert!(records(&node.open_tree("albums").unwrap()) == records(&world.tree));
    assert_eq!(vfs.list(Path::new("/node.db.download")).unwrap().len(), 1, "only the lock's file stays");
    let again = Checkpoints::new(plain(&bucket)).vfs(vfs).install_newest("/node.db");
    assert!(again.is_err(), "a database is not replaced");
}

#[test]
fn install_of_damaged_checkpoint_leaves_nothing() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    world.change();
    let checkpoints = |vfs: &Arc<dyn Vfs>| Checkpoints::new(plain(&bucket)).vfs(Arc::clone(vfs));
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    assert!(checkpoints(&vfs).install_newest("/node.db").unwrap_err().is_not_found());
    checkpoints(&vfs).publish(&world.db).unwrap();
    let run = bucket.names().into_iter().find(|name| name.ends_with(".run")).unwrap();
    let whole = bucket.get(&run).unwrap();
    let mut damaged = whole.to_vec();
    damaged[whole.len() / 2] ^= 1;
    bucket.insert(&run, damaged);
    assert!(checkpoints(&vfs).install_newest("/node.db").unwrap_err().is_corruption());
    bucket.insert(&run, whole);
    checkpoints(&vfs).install_newest("/node.db").unwrap();
}

static NEVER: AtomicBool = AtomicBool::new(false);

fn publish_as(target: &ObjectStoreTarget, epoch: u64, db: &Db) -> Result<Option<CheckpointInfo>> {
    Checkpoints::new(target.clone()).publish_as(epoch, db, &|| (), &NEVER)
}

#[test]
fn publication_of_a_superseded_owner_is_refused() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let directory = DirectoryTarget::open_in(Arc::new(MemVfs::new()), "/checkpoints").unwrap();
    let both: [Arc<dyn Fn() -> Checkpoints>; 2] =
        [Arc::new(move || Checkpoints::new(plain(&bucket))), Arc::new(move || Checkpoints::new(directory.clone()))];
    for checkpoints in both {
        let publish = |epoch| checkpoints().publish_as(epoch, &world.db, &|| (), &NEVER).unwrap();
        assert_eq!(publish(1), None, "nobody has claimed it");
        let first = checkpoints().claim("first").unwrap();
        world.change();
        let published = publish(first).unwrap();
        let second = checkpoints().claim("second").unwrap();
        assert!(second > first);
        world.change();
        assert_eq!(publish(first), None);
        assert_eq!(checkpoints().newest().unwrap().unwrap().sequence, published.sequence);
        let published = publish(second).unwrap();
        assert_eq!(publish(first), None);
        assert_eq!(checkpoints().newest().unwrap(), Some(published));
    }
}

/// A zombie: suspended at any request of its publication, while the next owner claims and publishes.
#[test]
fn owner_suspended_at_each_request_never_publishes_after_the_next_claim() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let first = Checkpoints::new(plain(&bucket)).claim("first").unwrap();
    for _ in 0..2 {
        world.change();
        publish_as(&plain(&bucket), first, &world.db).unwrap().unwrap();
    }
    let (mut request, mut requests, mut refused) = (0, 1, 0);
    while request < requests {
        let bucket = bucket.copy();
        let store = Faulty::faultless(&bucket);
        let zombie = target(Arc::clone(&store), 0);
        let seen: Arc<Mutex<Option<Result<Vec<BackupInfo>>>>> = Arc::default();
        let (next_world, next, result) = (Arc::clone(&world), target(Faulty::faultless(&bucket), 2), Arc::clone(&seen));
        store.stall(request, Moment::Before, move || {
            let epoch = Checkpoints::new(next.clone()).claim("second");
            let published = epoch.and_then(|epoch| {
                next_world.change();
                publish_as(&next, epoch, &next_world.db)
            });
            *result.lock().unwrap() = Some(published.and_then(|_| Backups::new(&next).list()));
        });
        world.change();
        let published = publish_as(&zombie, first, &world.db);
        refused += u32::from(!matches!(published, Ok(Some(_))));
        store.settle();
        requests = requests.max(store.requests());
        request += 1;
        // A run with failures on a busy machine has more requests than another.
        let Some(seen) = seen.lock().unwrap().take() else { continue };
        let (seen, last) = (seen.unwrap(), target(Faulty::faultless(&bucket), 4));
        let listed = Backups::new(&last).list().unwrap();
        assert_eq!(listed.last(), seen.last(), "request {request}: {published:?}");
        assert!(Backups::new(&last).verify(None).unwrap().problems.is_empty(), "request {request}");
    }
    assert!(request > 15 && refused > 5, "{request} requests, {refused} refused");
}

#[test]
fn cancelled_publication_is_not_visible() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let checkpoints = Checkpoints::new(plain(&bucket));
    let epoch = checkpoints.claim("owner").unwrap();
    world.change();
    let is_cancelled = AtomicBool::new(false);
    let cancel = || is_cancelled.store(true, Ordering::Release);
    let cancelled = checkpoints.publish_as(epoch, &world.db, &cancel, &is_cancelled);
    assert!(matches!(cancelled, Err(Error::Closed)), "{cancelled:?}");
    assert_eq!(checkpoints.newest().unwrap(), None);
    assert!(!bucket.names().iter().any(|name| name.ends_with(".run")), "{:?}", bucket.names());
    publish_as(&plain(&bucket), epoch, &world.db).unwrap().unwrap();
}

/// Each owner installs the checkpoint of the one before, so it has most files already.
#[test]
fn checkpoints_of_one_owner_after_another_share_files_and_are_deleted() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let epoch = Checkpoints::new(plain(&bucket)).claim("owner 0").unwrap();
    world.change();
    publish_as(&plain(&bucket), epoch, &world.db).unwrap().unwrap();
    for owner in 1..4 {
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let checkpoints = Checkpoints::new(plain(&bucket)).vfs(Arc::clone(&vfs));
        checkpoints.install_newest("/node.db").unwrap();
        let db = Builder::new().vfs(vfs).open("/node.db").unwrap();
        let epoch = checkpoints.claim(&format!("owner {owner}")).unwrap();
        db.tree("albums").unwrap().put(format!("new {owner}").as_bytes(), b"").unwrap();
        let mut is_taken = AtomicBool::new(false);
        let taken = || is_taken.store(true, Ordering::Release);
        let info = checkpoints.publish_as(epoch, &db, &taken, &NEVER).unwrap().unwrap();
        assert!(*is_taken.get_mut() && info.bytes_copied < info.bytes, "{info:?}");
        db.tree("albums").unwrap().put(b"other", b"").unwrap();
        publish_as(&plain(&bucket), epoch, &db).unwrap().unwrap();
        assert_eq!(Backups::new(&plain(&bucket)).list().unwrap().len(), 2);
        assert_eq!(bucket.names().iter().filter(|name| name.ends_with(".owner")).count(), 1);
    }
}

/// The sound checkpoints are installed and replaced although one description is damaged.
#[test]
fn damaged_description_of_a_checkpoint_stops_neither_installs_nor_deletions() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let checkpoints = |vfs| Checkpoints::new(plain(&bucket)).vfs(vfs);
    let memory = || -> Arc<dyn Vfs> { Arc::new(MemVfs::new()) };
    let epoch = checkpoints(memory()).claim("owner").unwrap();
    let publish = || {
        world.change();
        publish_as(&plain(&bucket), epoch, &world.db).unwrap().unwrap()
    };
    let damaged = publish();
    let name = bucket.names().into_iter().find(|name| name.ends_with(".backup")).unwrap();
    let mut bytes = bucket.get(&name).unwrap().to_vec();
    bytes[8] ^= 1;
    bucket.insert(&name, bytes);
    assert!(checkpoints(memory()).install_newest("/node.db").unwrap_err().is_corruption());
    let infos = [publish(), publish(), publish()];
    let ids = |infos: &[CheckpointInfo]| infos.iter().map(|info| info.id).collect::<Vec<_>>();
    let target = plain(&bucket);
    let (sound, errors) = Backups::new(&target).list_sound().unwrap();
    assert_eq!((ids(&sound), errors.len()), (ids(&infos[1..]), 1));
    assert_eq!(checkpoints(memory()).install_newest("/node.db").unwrap().id, infos[2].id);
    Backups::new(&target).delete(damaged.id).unwrap();
    assert!(Backups::new(&target).verify(None).unwrap().problems.is_empty());
}

#[test]
fn publication_of_an_owner_keeps_young_checkpoints() {
    let (world, bucket) = (World::new(), Arc::new(Bucket::default()));
    let epoch = Checkpoints::new(plain(&bucket)).claim("owner").unwrap();
    let publish = |retention| {
        world.change();
        let checkpoints = Checkpoints::new(plain(&bucket)).retention(retention);
        checkpoints.publish_as(epoch, &world.db, &|| (), &NEVER).unwrap().unwrap();
        Backups::new(&plain(&bucket)).list().unwrap().len()
    };
    let hour = Duration::from_secs(3600);
    let kept = [Retention::new().keep_for(hour), Retention::new().keep(1).keep_for(hour), Retention::new()];
    assert_eq!(kept.map(publish), [1, 2, 3]);
    // Clocks tick each 4 to 16 ms; in one tick a checkpoint has no age.
    SystemRuntime::new().sleep_us(50_000);
    assert_eq!(publish(Retention::new().keep_for(Duration::ZERO)), 1);
}
