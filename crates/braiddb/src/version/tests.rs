use super::*;
use crate::{
    codec::{FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind},
    platform::{
        File, MemVfs, OpenMode, Runtime, SystemRuntime, Vfs,
        fault_vfs::{FaultVfs, Operation},
    },
    table::{BlobUse, Expiries, RunMeta},
};
use std::{path::Path, sync::Arc};

fn run(number: u64) -> RunMeta {
    RunMeta {
        number,
        file_id: 7 * number,
        file_bytes: 4096,
        raw_bytes: 3000,
        entries: 30,
        tombstones: 1,
        blocks: 1,
        smallest: b"a".to_vec(),
        largest: b"z".to_vec(),
        min_sequence: 1,
        max_sequence: 30,
        range_tombstones: 0,
        blob_uses: vec![BlobUse { file: 9, bytes: 100, values: 2 }],
        expiries: if number.is_multiple_of(2) {
            Expiries::default()
        } else {
            Expiries { entries: 3, times: vec![number, number + 90] }
        },
        has_key_block: true,
        view_offset: 8192,
        view_bytes: 4096,
    }
}

fn first() -> Layout {
    let mut layout = Layout { next_file: 10, ..Layout::default() };
    layout.apply(&Edit::new(vec![Change::NewPartition { id: 0, start: vec![], end: None }])).unwrap();
    layout
}

fn add_run(number: u64) -> Edit {
    Edit::new(vec![
        Change::NewRun(Box::new(run(number))),
        Change::AddLoose { partition: 0, run: number },
        Change::Flushed(number),
        Change::NextFile(number + 1),
    ])
}

fn split() -> Edit {
    let set = |partition| Change::SetRuns { partition, runs: vec![], loose: vec![20], view: None };
    Edit::new(vec![
        Change::DropPartition(0),
        Change::NewPartition { id: 30, start: vec![], end: Some(b"m".to_vec()) },
        Change::NewPartition { id: 31, start: b"m".to_vec(), end: None },
        set(30),
        set(31),
        Change::Log { oldest_segment: 5, durable_lsn: 1 << 40 },
        Change::LastSequence(77),
        Change::Time { now_us: 1 << 51, ahead_us: 12 },
        Change::Incarnation(u64::MAX),
        Change::Epoch(3),
    ])
}

#[test]
fn changes_round_trip_and_decode_refuses_prefixes() {
    let mut edit = add_run(20);
    edit.changes.extend(split().changes);
    let bytes = edit.encode();
    assert_eq!(Edit::decode(&bytes).unwrap(), edit);
    for len in 0..bytes.len() {
        assert_ne!(Edit::decode(&bytes[..len]), Some(edit.clone()));
    }
}

#[test]
fn layout_from_own_edit_is_equal_and_drops_unused_runs() {
    let mut layout = first();
    layout.apply(&add_run(20)).unwrap();
    layout.apply(&add_run(21)).unwrap();
    layout.apply(&split()).unwrap();
    assert_eq!(layout.runs.keys().copied().collect::<Vec<_>>(), [20]);
    layout.check_cover().unwrap();
    let mut again = Layout::default();
    again.apply(&layout.to_edit()).unwrap();
    assert_eq!(again, layout);
}

#[test]
fn apply_of_edit_that_violates_invariant_fails() {
    for changes in [
        vec![Change::AddLoose { partition: 0, run: 99 }],
        vec![Change::AddLoose { partition: 8, run: 20 }],
        vec![Change::DropPartition(8)],
        vec![Change::NewPartition { id: 0, start: vec![], end: None }],
        vec![Change::SetRuns { partition: 0, runs: vec![99], loose: vec![], view: None }],
    ] {
        let mut layout = first();
        assert!(layout.apply(&Edit::new(changes.clone())).is_err(), "{changes:?}");
    }
    let mut layout = first();
    layout.apply(&Edit::new(vec![Change::NewPartition { id: 1, start: b"k".to_vec(), end: None }])).unwrap();
    assert!(layout.check_cover().is_err());
}

struct World {
    mem: Arc<MemVfs>,
    vfs: Arc<dyn Vfs>,
    runtime: Arc<dyn Runtime>,
}

const DIR: &str = "/d";

fn world() -> World {
    let mem = Arc::new(MemVfs::new());
    mem.create_dir_all(Path::new(DIR)).unwrap();
    World { vfs: Arc::clone(&mem) as Arc<dyn Vfs>, mem, runtime: Arc::new(SystemRuntime::new()) }
}

impl World {
    fn open(&self) -> crate::base::Result<Option<Manifest>> {
        Manifest::open(&self.vfs, &self.runtime, Path::new(DIR), false)
    }

    fn file(&self, name: &str) -> Arc<dyn File> {
        self.mem.open(&Path::new(DIR).join(name), OpenMode::ReadWrite).unwrap()
    }
}

#[test]
fn commit_to_manifest_of_earlier_version_rewrites_it_first() {
    let world = world();
    let manifest = Manifest::create(&world.vfs, &world.runtime, Path::new(DIR), first()).unwrap();
    let version_of = |number: u64| {
        let name = manifest_name(number);
        let mut bytes = [0; FILE_HEADER_LEN];
        world.file(&name).read_exact_at(&mut bytes, 0).unwrap();
        let header = FileHeader::decode(FileKind::Manifest, &bytes, Path::new(&name), 0).unwrap();
        (header, world.file(&name))
    };
    let (header, file) = version_of(manifest.number());
    file.write_at(&FileHeader { version: FORMAT_VERSION - 1, ..header }.encode(), 0).unwrap();
    drop(manifest);
    let mut manifest = world.open().unwrap().unwrap();
    let before = manifest.number();
    manifest.commit(&add_run(21)).unwrap();
    assert!(manifest.number() > before);
    assert_eq!(version_of(manifest.number()).0.version, FORMAT_VERSION);
    let number = manifest.number();
    manifest.commit(&add_run(22)).unwrap();
    assert_eq!((manifest.number(), manifest.layout().runs.len()), (number, 2));
    assert_eq!(world.open().unwrap().unwrap().layout().runs.len(), 2);
}

#[test]
fn edits_survive_reopen_and_rewrite() {
    let world = world();
    assert!(world.open().unwrap().is_none());
    let mut manifest = Manifest::create(&world.vfs, &world.runtime, Path::new(DIR), first()).unwrap();
    let number = manifest.number();
    for i in 20..8_000 {
        let mut edit = add_run(i);
        edit.changes.push(Change::SetRuns { partition: 0, runs: vec![], loose: vec![i], view: None });
        manifest.commit(&edit).unwrap();
        if i % 5_000 == 0 {
            let layout = manifest.layout().clone();
            drop(manifest);
            manifest = world.open().unwrap().unwrap();
            assert_eq!(*manifest.layout(), layout);
        }
    }
    assert_ne!(manifest.number(), number, "a long manifest is rewritten");
    let files = world.mem.list(Path::new(DIR)).unwrap();
    assert_eq!(files.iter().filter(|f| f.name.starts_with("MANIFEST")).count(), 1);
}

/// A follower read the whole manifest at each flush, too slowly with a busy writer.
#[test]
fn manifest_reopened_after_edits_reads_only_those() {
    let fault = FaultVfs::new(Path::new(DIR));
    let vfs: Arc<dyn Vfs> = Arc::new(fault.clone());
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::new());
    let mut owner = Manifest::create(&vfs, &runtime, Path::new(DIR), first()).unwrap();
    let edit = |number| {
        let only = Change::SetRuns { partition: 0, runs: vec![], loose: vec![number], view: None };
        let large = RunMeta { smallest: vec![b'a'; 2000], ..run(number) };
        let mut edit = add_run(number);
        edit.changes.extend([Change::NewRun(Box::new(large)), only]);
        edit
    };
    let mut reader = Manifest::open(&vfs, &runtime, Path::new(DIR), true).unwrap().unwrap();
    let (mut most, mut rewrites) = (0, 0);
    for number in 20..400 {
        owner.commit(&edit(number)).unwrap();
        let is_rewritten = owner.number() != reader.number();
        let before = fault.bytes_read("");
        reader = reader.reopen().unwrap().unwrap();
        assert_eq!(reader.layout(), owner.layout());
        assert_eq!((reader.number(), reader.len()), (owner.number(), owner.len()));
        assert!(!reader.has_gone_on().unwrap());
        if is_rewritten {
            rewrites += 1;
        } else {
            most = most.max(fault.bytes_read("") - before);
        }
    }
    assert!(rewrites > 0 && most > 0 && most < 8192, "{rewrites} rewrites; {most} bytes read for one edit");
}

/// A record that CURRENT does not count yet may be removed and replaced, as on a full disk.
#[test]
fn manifest_reopened_after_its_last_record_changed_has_the_new_one() {
    let world = world();
    let mut owner = Manifest::create(&world.vfs, &world.runtime, Path::new(DIR), first()).unwrap();
    owner.commit(&add_run(20)).unwrap();
    let (counted, current) = (owner.len(), world.file("CURRENT"));
    let read = |file: &Arc<dyn File>| {
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let old_current = read(&current);
    let mut other = owner.clone();
    owner.commit(&add_run(21)).unwrap();
    // As before CURRENT was written.
    current.write_at(&old_current, 0).unwrap();
    let open = || Manifest::open(&world.vfs, &world.runtime, Path::new(DIR), true).unwrap().unwrap();
    let reader = open();
    assert!(reader.layout().runs.contains_key(&21) && reader.len() > counted);
    // CURRENT as it was, and then with that record.
    assert_eq!(reader.reopen().unwrap().unwrap().layout(), owner.layout());
    owner.commit(&add_run(23)).unwrap();
    assert_eq!(reader.reopen().unwrap().unwrap().layout(), owner.layout());

    let manifest = world.file(&manifest_name(owner.number()));
    manifest.set_len(counted).unwrap();
    current.write_at(&old_current, 0).unwrap();
    other.commit(&add_run(22)).unwrap();
    for reopened in [reader.reopen().unwrap().unwrap(), open()] {
        assert_eq!(reopened.layout(), other.layout());
        assert!(!reopened.layout().runs.contains_key(&21));
    }
}

/// CURRENT names the new manifest at once, so its directory entry must be synced before.
#[test]
fn rewritten_manifest_survives_crash() {
    let dir = Path::new(DIR);
    let fault = FaultVfs::new(dir);
    let (vfs, runtime): (Arc<dyn Vfs>, Arc<dyn Runtime>) = (Arc::new(fault.clone()), Arc::new(SystemRuntime::new()));
    let mut manifest = Manifest::create(&vfs, &runtime, dir, first()).unwrap();
    let number = manifest.number();
    for i in 20.. {
        let mut edit = add_run(i);
        edit.changes.push(Change::SetRuns { partition: 0, runs: vec![], loose: vec![i], view: None });
        manifest.commit(&edit).unwrap();
        if manifest.number() != number {
            break;
        }
    }
    let mut flips = 3_u32;
    for worst in [true, false, false, false, false, false] {
        let crashed: Arc<dyn Vfs> = Arc::new(fault.crashed(|| {
            flips = flips.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            !worst && flips >> 31 == 1
        }));
        let found = Manifest::open(&crashed, &runtime, dir, false).unwrap().unwrap();
        assert_eq!((found.number(), found.layout()), (manifest.number(), manifest.layout()));
    }
}

#[test]
fn open_of_manifest_refuses_flipped_bits_and_ignores_torn_tail() {
    let world = world();
    let mut manifest = Manifest::create(&world.vfs, &world.runtime, Path::new(DIR), first()).unwrap();
    manifest.commit(&add_run(20)).unwrap();
    let layout = manifest.layout().clone();
    let (name, len) = (manifest_name(manifest.number()), manifest.len());
    drop(manifest);
    let file = world.file(&name);
    for bit in 0..len * 8 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit / 8).unwrap();
        file.write_at(&[byte[0] ^ (1 << (bit % 8))], bit / 8).unwrap();
        let error = world.open().expect_err("a flipped bit is seen");
        assert!(error.is_corruption(), "{error}");
        file.write_at(&byte, bit / 8).unwrap();
    }
    file.write_at(&[1, 2, 3], len).unwrap();
    assert_eq!(*world.open().unwrap().unwrap().layout(), layout);
    assert_eq!(file.len().unwrap(), len);
    file.set_len(len - 1).unwrap();
    assert!(world.open().unwrap_err().is_corruption());
}

#[test]
fn open_with_one_damaged_slot_succeeds_and_with_two_is_corruption() {
    let world = world();
    let mut manifest = Manifest::create(&world.vfs, &world.runtime, Path::new(DIR), first()).unwrap();
    manifest.commit(&add_run(20)).unwrap();
    let layout = manifest.layout().clone();
    drop(manifest);
    let file = world.file(CURRENT_NAME);
    for slot in SLOT_OFFSETS {
        let mut byte = [0];
        for at in (0..SLOT_LEN as u64).filter(|at| !(8..12).contains(at)) {
            file.read_exact_at(&mut byte, slot + at).unwrap();
            file.write_at(&[byte[0] ^ 0x10], slot + at).unwrap();
            let found = Manifest::open(&world.vfs, &world.runtime, Path::new(DIR), true).unwrap().unwrap();
            assert_eq!(*found.layout(), layout, "slot {slot}, byte {at}");
            file.write_at(&byte, slot + at).unwrap();
        }
    }
    for slot in SLOT_OFFSETS {
        file.write_at(&[0; 16], slot + 40).unwrap();
    }
    assert!(world.open().unwrap_err().is_corruption());
}

#[test]
fn manifest_rewrite_after_full_disk_succeeds() {
    let fault = FaultVfs::new(Path::new(DIR));
    let vfs: Arc<dyn Vfs> = Arc::new(fault.clone());
    let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::new());
    let mut layout = Layout { next_file: 1, ..Layout::default() };
    layout.apply(&Edit::new(vec![Change::NewPartition { id: 0, start: Vec::new(), end: None }])).unwrap();
    let mut manifest = Manifest::create(&vfs, &runtime, Path::new(DIR), layout).unwrap();
    let edit = Edit::new((0..20_000).map(Change::LastSequence).collect());
    while manifest.len() <= 256 << 10 {
        manifest.commit(&edit).unwrap();
    }
    fault.fail(Operation::Write, 0, 1, std::io::ErrorKind::StorageFull);
    assert!(manifest.commit(&edit).unwrap_err().is_disk_full());
    manifest.commit(&edit).unwrap();
    drop(manifest);
    let manifest = Manifest::open(&vfs, &runtime, Path::new(DIR), false).unwrap().unwrap();
    assert_eq!(manifest.layout().last_sequence, 19_999);
}
