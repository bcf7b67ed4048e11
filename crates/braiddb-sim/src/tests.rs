//! Tests of the simulated disk against its fault model.

use crate::{Call, CrashPolicy, DiskSpeed, Effect, Fault, SimDisk, SimRuntime};
use braiddb::platform::{File, OpenMode, Runtime, Vfs};
use std::{collections::BTreeSet, io::ErrorKind, path::Path, sync::Arc};

#[path = "../../braiddb/src/platform/os/tests/conformance.rs"]
mod conformance;

const A: &str = "/db/a";
const B: &str = "/db/b";

fn disk() -> Arc<SimDisk> {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/db")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn create(disk: &SimDisk, path: &str) -> Arc<dyn File> {
    disk.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

fn durable(disk: &SimDisk, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(disk, path);
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    file
}

fn now(disk: &SimDisk, policy: CrashPolicy) -> Arc<SimDisk> {
    disk.crash_image(disk.operations(), policy)
}

fn outcomes(disk: &SimDisk, path: &str, images: u64) -> BTreeSet<Option<Vec<u8>>> {
    (0..images).map(|i| now(disk, CrashPolicy::Random(i)).read_file(path).ok()).collect()
}

#[test]
fn simulated_disk_passes_conformance() {
    let disk = SimDisk::new(7);
    conformance::check(&*disk, Path::new("/root"));
    let sum: u64 = disk.files().iter().map(|(_, len)| len.div_ceil(4096) * 4096).sum();
    assert!(disk.used_bytes() <= sum, "{} of {sum}", disk.used_bytes());
    let copy = now(&disk, CrashPolicy::KeepAll);
    assert_eq!(copy.files(), disk.files());
    assert_eq!(copy.used_bytes(), disk.used_bytes());
    for (path, _) in disk.files() {
        assert!(copy.read_file(&path).unwrap() == disk.read_file(&path).unwrap(), "{}", path.display());
    }
}

#[test]
fn synced_bytes_after_crash_survive_every_policy() {
    let disk = disk();
    let file = durable(&disk, A, &[7; 9000]);
    file.write_at(&[8; 9000], 9000).unwrap();
    create(&disk, B);
    let mut policies = CrashPolicy::some(300, 5);
    policies.extend((0..9000).step_by(777).map(|bytes| CrashPolicy::TornLast { bytes }));
    for policy in policies {
        let bytes = now(&disk, policy).read_file(A).unwrap();
        assert!(bytes.len() >= 9000 && bytes[..9000] == [7; 9000], "{policy:?}");
    }
}

#[test]
fn writes_around_synced_bytes_may_be_lost() {
    let disk = disk();
    let file = durable(&disk, A, &[1; 12_288]);
    file.write_at(&[2; 8192], 0).unwrap();
    file.write_at(&[3; 100], 50).unwrap();
    file.write_at(&[4; 100], 4096).unwrap();
    file.sync_bytes(&[3; 100], 50).unwrap();
    let mut fates = BTreeSet::new();
    for policy in CrashPolicy::some(300, 5) {
        let bytes = now(&disk, policy).read_file(A).unwrap();
        assert_eq!(bytes[50..150], [3; 100], "{policy:?}");
        fates.insert((bytes[0], bytes[4096], bytes[8191], bytes[8192]));
    }
    assert_eq!(fates.iter().filter(|fate| fate.3 != 1).count(), 0, "unwritten bytes must not change");
    assert!(fates.contains(&(1, 1, 1, 1)), "the surrounding writes may be lost: {fates:?}");
    assert!(fates.contains(&(2, 4, 2, 1)), "the surrounding writes may be kept: {fates:?}");
}

#[test]
fn crash_image_at_moment_has_its_synced_state() {
    let disk = disk();
    let file = durable(&disk, A, b"1");
    let mut moments = vec![disk.operations()];
    for byte in b"2345" {
        file.write_at(&[*byte], 0).unwrap();
        file.sync_data().unwrap();
        moments.push(disk.operations());
    }
    for (moment, byte) in moments.iter().zip(b"12345").rev().chain(moments.iter().zip(b"12345")) {
        let image = disk.crash_image(*moment, CrashPolicy::LoseAllUnsynced);
        assert_eq!(image.read_file(A).unwrap(), [*byte]);
        assert_eq!(image.operations(), 0);
    }
    assert!(disk.crash_image(0, CrashPolicy::KeepAll).files().is_empty());
}

#[test]
fn crash_image_of_same_seed_is_equal() {
    let disk = disk();
    let file = durable(&disk, A, &[1; 5000]);
    file.write_at(&[2; 20_000], 3000).unwrap();
    create(&disk, B).write_at(&[3; 700], 0).unwrap();
    for seed in 0..50 {
        let (one, two) = (now(&disk, CrashPolicy::Random(seed)), now(&disk, CrashPolicy::Random(seed)));
        assert_eq!(one.files(), two.files());
        for (path, _) in one.files() {
            assert!(one.read_file(&path).unwrap() == two.read_file(&path).unwrap());
        }
    }
}

#[test]
fn unsynced_names_after_crash_are_kept_or_lost_independently() {
    let disk = disk();
    let file = durable(&disk, A, b"a");
    create(&disk, B).sync_data().unwrap();
    disk.remove(Path::new(A)).unwrap();
    drop(file);
    let lists: BTreeSet<Vec<_>> = (0..200).map(|i| now(&disk, CrashPolicy::Random(i)).files()).collect();
    assert_eq!(lists.len(), 4, "{lists:?}");
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap(), b"a");
    assert_eq!(now(&disk, CrashPolicy::ContentsOnly).files().len(), 1);
    disk.sync_dir(Path::new("/db")).unwrap();
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).files(), [(B.into(), 0)]);
}

#[test]
fn directory_unsynced_in_parent_may_vanish() {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/db/deep")).unwrap();
    create(&disk, "/db/deep/f").sync_data().unwrap();
    disk.sync_dir(Path::new("/db/deep")).unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    let image = now(&disk, CrashPolicy::LoseAllUnsynced);
    assert!(image.files().is_empty());
    assert_eq!(image.list(Path::new("/db")).unwrap_err().kind(), ErrorKind::NotFound);
    disk.sync_dir(Path::new("/")).unwrap();
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).files().len(), 1);
}

#[test]
fn rename_after_crash_is_old_or_new() {
    let disk = disk();
    durable(&disk, A, b"old");
    let new = create(&disk, B);
    new.write_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    disk.sync_dir(Path::new("/db")).unwrap();
    disk.rename(Path::new(B), Path::new(A)).unwrap();
    let seen: BTreeSet<_> = (0..100)
        .map(|i| now(&disk, CrashPolicy::Random(i)))
        .map(|image| (image.read_file(A).unwrap(), image.read_file(B).ok()))
        .collect();
    let both = [(b"new".to_vec(), None), (b"old".to_vec(), Some(b"new".to_vec()))];
    assert_eq!(seen, BTreeSet::from(both));
}

#[test]
fn later_write_may_survive_without_earlier_one() {
    let disk = disk();
    let file = durable(&disk, A, &[0; 8192]);
    file.write_at(b"first", 0).unwrap();
    file.write_at(b"second", 4096).unwrap();
    let seen = outcomes(&disk, A, 300);
    let second_only = seen.iter().flatten().any(|one| one[..5] == [0; 5] && one[4096..].starts_with(b"second"));
    let first_only = seen.iter().flatten().any(|one| one.starts_with(b"first") && one[4096..4102] == [0; 6]);
    assert!(second_only && first_only);
    assert!(seen.iter().flatten().any(|one| one.starts_with(b"first") && one[4096..].starts_with(b"second")));
}

#[test]
fn unsynced_write_tears_at_sectors_and_in_small_files_at_bytes() {
    let disk = disk();
    let file = durable(&disk, A, &[0; 16384]);
    file.write_at(&[1; 16384], 0).unwrap();
    let mut cuts = BTreeSet::new();
    for bytes in outcomes(&disk, A, 2000).into_iter().flatten() {
        cuts.extend((1..bytes.len()).filter(|i| bytes[*i] != bytes[*i - 1]));
    }
    assert!((1..32).all(|sector| cuts.contains(&(sector * 512))), "a cut at each sector boundary");
    assert!(cuts.iter().filter(|cut| *cut % 512 != 0).count() > 100, "cuts at many other bytes");
    for bytes in [0, 1, 511, 16383, 16384] {
        let image = now(&disk, CrashPolicy::TornLast { bytes: bytes as u64 }).read_file(A).unwrap();
        assert_eq!(image.iter().filter(|byte| **byte == 1).count(), bytes);
        assert_eq!(image.iter().position(|byte| *byte == 0).unwrap_or(16384), bytes);
    }
}

#[test]
fn length_after_crash_may_survive_without_data() {
    let disk = disk();
    let file = durable(&disk, A, b"abc");
    file.write_at(&[5; 1000], 3).unwrap();
    let zeros = now(&disk, CrashPolicy::LengthsOnly { stale: false }).read_file(A).unwrap();
    assert_eq!(zeros[..3], *b"abc");
    assert_eq!(zeros[3..], [0; 1000]);
    let stale = now(&disk, CrashPolicy::LengthsOnly { stale: true }).read_file(A).unwrap();
    assert_eq!((stale.len(), &stale[..3]), (1003, &b"abc"[..]));
    assert!(stale[3..] != [0; 1000] && stale[3..] != [5; 1000]);
    let lengths: BTreeSet<usize> = outcomes(&disk, A, 300).into_iter().flatten().map(|bytes| bytes.len()).collect();
    assert!(lengths.contains(&3) && lengths.contains(&1003) && lengths.len() > 10);
    assert_eq!(now(&disk, CrashPolicy::NamesOnly).read_file(A).unwrap(), b"abc");
}

#[test]
fn sync_after_failed_sync_does_not_cover_earlier_writes() {
    let disk = disk();
    let file = durable(&disk, A, &[0; 8192]);
    file.write_at(&[1; 8192], 0).unwrap();
    disk.inject(Fault::nth_of(Call::Sync, 0, ErrorKind::Other));
    assert!(file.sync_data().is_err());
    file.write_at(&[2; 4096], 4096).unwrap();
    file.sync_data().unwrap();
    for image in outcomes(&disk, A, 200) {
        let bytes = image.unwrap();
        assert!(bytes[4096..] == [2; 4096], "writes after the failed sync are durable");
    }
    assert!(now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap()[..4096] == [0; 4096]);
    assert!(now(&disk, CrashPolicy::KeepAll).read_file(A).unwrap()[..4096] == [1; 4096]);
    file.write_at(&[1; 4096], 0).unwrap();
    file.sync_data().unwrap();
    let bytes = now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 4096]);
}

#[test]
fn crash_image_of_crash_image_starts_from_surviving_state() {
    let disk = disk();
    durable(&disk, A, b"kept").write_at(b"lost", 0).unwrap();
    let image = now(&disk, CrashPolicy::LoseAllUnsynced);
    let file = image.open(Path::new(A), OpenMode::ReadWrite).unwrap();
    file.write_at(b"again", 4).unwrap();
    create(&image, B);
    assert_eq!(now(&image, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap(), b"kept");
    assert_eq!(now(&image, CrashPolicy::KeepAll).read_file(A).unwrap(), b"keptagain");
    assert_eq!(now(&disk, CrashPolicy::KeepAll).read_file(A).unwrap(), b"lost", "the original disk is unchanged");
}

#[test]
fn calls_with_planned_fault_fail() {
    let disk = disk();
    let file = create(&disk, A);
    let before = disk.calls(None);
    disk.inject(Fault::nth(1, ErrorKind::Interrupted));
    file.write_at(b"1", 0).unwrap();
    assert_eq!(file.write_at(b"2", 1).unwrap_err().kind(), ErrorKind::Interrupted);
    file.write_at(b"2", 1).unwrap();
    assert_eq!(disk.calls(None) - before, 3);
    assert_eq!(disk.calls(Some(Call::Create)), 1);
    disk.inject(Fault {
        path_suffix: Some("/b".to_owned()),
        effect: Effect::Short { bytes: 3, error: ErrorKind::StorageFull },
        ..Fault::all_from(1, ErrorKind::Other)
    });
    let other = create(&disk, B);
    file.write_at(b"long enough", 0).unwrap();
    for _ in 0..2 {
        assert_eq!(other.write_at(b"long enough", 0).unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(other.sync_data().is_err());
    }
    assert_eq!(disk.read_file(B).unwrap(), b"lon");
    assert_eq!(disk.failed_calls().len(), 5);
    disk.clear_faults();
    other.write_at(b"long enough", 0).unwrap();
}

#[test]
fn write_on_full_disk_is_partial_and_freed_space_is_reusable() {
    let disk = disk();
    disk.set_capacity(Some(16384));
    let file = create(&disk, A);
    file.write_at(&[1; 10_000], 0).unwrap();
    assert_eq!(disk.free_space(Path::new("/")).unwrap(), Some(4096));
    assert_eq!(file.write_at(&[2; 10_000], 10_000).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 16384);
    let other = create(&disk, B);
    assert_eq!(other.preallocate(1).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(other.write_at(b"x", 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(other.len().unwrap(), 0);
    file.write_at(&[3; 16384], 0).unwrap();
    file.set_len(4096).unwrap();
    other.preallocate(12_288).unwrap();
    assert_eq!(file.write_at(b"x", 4096).unwrap_err().kind(), ErrorKind::StorageFull);
    other.write_at(&[4; 12_288], 0).unwrap();
    disk.remove(Path::new(B)).unwrap();
    assert_eq!(disk.used_bytes(), 16384, "a removed open file keeps its space");
    drop(other);
    assert_eq!(disk.used_bytes(), 4096);
    file.write_at(&[5; 12_288], 4096).unwrap();
    disk.set_capacity(None);
    file.write_at(b"x", 1 << 20).unwrap();
}

#[test]
fn slow_disk_with_two_streams_shares_its_time() {
    let runtime = SimRuntime::new(3);
    let disk = disk();
    let speed = DiskSpeed { bytes_per_second: 10 << 20, sync_us: 20_000, unsynced_bytes_max: 4 << 20 };
    disk.set_speed(Some(speed), runtime.clone());
    let took = |work: &dyn Fn()| {
        let before = runtime.monotonic_ns();
        work();
        (runtime.monotonic_ns() - before) / 1_000_000
    };
    let (file, small) = (create(&disk, A), create(&disk, B));
    assert_eq!(took(&|| file.write_at(&vec![1; 4 << 20], 0).unwrap()), 0, "below the limit of unsynced bytes");
    let second = took(&|| file.write_at(&vec![1; 1 << 20], 4 << 20).unwrap());
    assert!((99..110).contains(&second), "{second} ms for 1 MiB above the limit");
    let sync = took(&|| file.sync_data().unwrap());
    assert!((419..440).contains(&sync), "{sync} ms for 4 MiB and the sync");
    small.write_at(b"x", 0).unwrap();
    assert_eq!(took(&|| small.sync_data().unwrap()), 20);
    assert_eq!(took(&|| disk.sync_dir(Path::new("/db")).unwrap()), 20);
    disk.set_speed(None, runtime.clone());
    file.write_at(&vec![2; 8 << 20], 0).unwrap();
    assert_eq!(took(&|| file.sync_data().unwrap()), 0);
}

#[test]
fn sync_covers_only_writes_before_its_start() {
    let runtime = SimRuntime::in_real_time(3);
    let disk = disk();
    let file = durable(&disk, A, &[0; 2]);
    let speed = DiskSpeed { bytes_per_second: 1 << 30, sync_us: 100_000, unsynced_bytes_max: 1 << 30 };
    disk.set_speed(Some(speed), runtime.clone());
    file.write_at(b"1", 0).unwrap();
    std::thread::scope(|scope| {
        let before = disk.calls(Some(Call::Sync));
        let syncing = scope.spawn(|| file.sync_data().unwrap());
        while disk.calls(Some(Call::Sync)) == before {
            std::thread::yield_now();
        }
        // The other thread's place in the journal is fixed by now.
        file.write_at(b"2", 1).unwrap();
        syncing.join().unwrap();
    });
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap(), b"1\0");
}

#[test]
fn damage_without_sync_is_durable() {
    let disk = disk();
    let file = durable(&disk, A, b"abc");
    durable(&disk, B, b"b");
    file.write_at(b"xyz", 3).unwrap();
    disk.flip_bit(A, 1).unwrap();
    assert_eq!(disk.read_file(A).unwrap(), b"cbcxyz");
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap()[..1], *b"c");
    assert_eq!(disk.flip_bit(A, 48).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    disk.truncate(A, 2).unwrap();
    disk.lose(B).unwrap();
    assert_eq!(disk.read_file(A).unwrap().len(), 2);
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).read_file(A).unwrap().len(), 2);
    assert_eq!(now(&disk, CrashPolicy::LoseAllUnsynced).files().len(), 1);
    let fork = disk.fork();
    fork.overwrite(A, 0, b"fork").unwrap();
    assert_eq!((fork.read_file(A).unwrap(), disk.read_file(A).unwrap().len()), (b"fork".to_vec(), 2));
}

#[test]
fn simulated_runtime_advances_by_sleep_and_refuses_threads() {
    let runtime = SimRuntime::new(1);
    let (unix, monotonic) = (runtime.unix_time_us(), runtime.monotonic_ns());
    runtime.sleep_us(3_600_000_000);
    assert!(runtime.unix_time_us() - unix >= 3_600_000_000);
    runtime.jump_us(-7_200_000_000);
    assert!(runtime.unix_time_us() < unix);
    assert!(runtime.monotonic_ns() > monotonic);
    assert!(runtime.spawn("x", Box::new(|| ())).is_err());
    SimRuntime::with_threads(1).spawn("x", Box::new(|| ())).unwrap().join().unwrap();
    assert_eq!(SimRuntime::new(9).random_u64(), SimRuntime::new(9).random_u64());
}

/// The story: each session of a workload drew the same random file ids. So stale bytes of a crash,
/// in a blob file written at the same offset of an older file, passed the checksum.
#[test]
fn session_number_in_copies_and_crash_images_is_unique() {
    let disk = disk();
    let first = disk.next_session();
    let (copy, image) = (disk.fork(), now(&disk, CrashPolicy::KeepAll));
    for other in [disk, copy, image] {
        assert_eq!(other.next_session(), first + 1);
    }
}
