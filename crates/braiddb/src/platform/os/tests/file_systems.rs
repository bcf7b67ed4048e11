use super::conformance;
use crate::platform::{File, MemVfs, OpenMode, Vfs};
use std::path::Path;

#[test]
fn mem_vfs_conforms() {
    conformance::check(&MemVfs::new(), Path::new("/root"));
    conformance::check(&MemVfs::new(), Path::new("relative"));
    conformance::check(&MemVfs::new(), Path::new("./dotted//"));
    conformance::check(&MemVfs::mapped(""), Path::new("/root"));
}

/// On Windows these calls cannot remove open files.
#[cfg(unix)]
#[test]
fn portable_vfs_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&crate::platform::PortableVfs::new(), dir.path());
}

#[cfg(unix)]
#[test]
fn posix_vfs_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&crate::platform::PosixVfs::new(), dir.path());
}

/// `braid top` asks for the owner each second, and a server that started in that instant was refused.
#[cfg(unix)]
#[test]
fn queries_of_the_owner_refuse_no_lock() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let (path, is_done) = (dir.path().join("LOCK"), AtomicBool::new(false));
    let vfs = crate::platform::PosixVfs::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                vfs.lock_owner(&path).unwrap();
            }
        });
        let refused = (0..2000).find_map(|_| vfs.lock(&path, "owner").unwrap().err());
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(refused, None);
    });
}

#[cfg(windows)]
#[test]
fn windows_vfs_conforms() {
    for vfs in [crate::platform::WindowsVfs::new(), crate::platform::WindowsVfs::flushing_device_caches()] {
        let dir = tempfile::tempdir().unwrap();
        conformance::check(&vfs, dir.path());
    }
}

/// The log relies on this.
#[cfg(target_os = "linux")]
#[test]
fn preallocated_file_on_known_file_system_maps() {
    let dir = tempfile::tempdir().unwrap();
    let file = crate::platform::PosixVfs::new().open(&dir.path().join("file"), OpenMode::CreateNew).unwrap();
    file.preallocate(1 << 20).unwrap();
    let kind = rustix::fs::statfs(dir.path()).unwrap().f_type;
    let is_known = [0xef53, 0x5846_5342].contains(&kind);
    assert_eq!(file.map_for_writing(1 << 20).unwrap().is_some(), is_known, "file system {kind:#x}");
    assert_eq!(file.next_written(0).unwrap(), (!is_known).then_some(0), "file system {kind:#x}");
}

#[test]
fn mem_file_with_long_hole_takes_no_memory() {
    let vfs = MemVfs::new();
    let file = vfs.open(Path::new("/sparse"), OpenMode::CreateNew).unwrap();
    file.set_len(1 << 60).unwrap();
    file.preallocate(1 << 61).unwrap();
    let mut buf = [1; 16];
    file.read_exact_at(&mut buf, (1 << 61) - 16).unwrap();
    assert_eq!(buf, [0; 16]);
    file.write_at(b"end", (1 << 30) - 1).unwrap();
    file.set_len(1 << 30).unwrap();
    assert_eq!(file.read_at(&mut buf, (1 << 30) - 1).unwrap(), 1);
    assert_eq!(buf[0], b'e');
}

#[test]
fn mem_file_without_writers_maps_for_reading() {
    let bytes: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let len = bytes.len() as u64;
    let path = Path::new("/file.run");
    for (vfs, lends) in [(MemVfs::new(), false), (MemVfs::mapped(".view"), false), (MemVfs::mapped(".run"), true)] {
        let writer = vfs.open(path, OpenMode::CreateNew).unwrap();
        writer.write_at(&bytes, 0).unwrap();
        let other = vfs.open(path, OpenMode::ReadWrite).unwrap();
        let reader = vfs.open(path, OpenMode::Read).unwrap();
        drop(writer);
        assert!(reader.map_for_reading(len).unwrap().is_none(), "another may write yet");
        drop(other);
        let Some(map) = reader.map_for_reading(len).unwrap() else {
            assert!(!lends);
            continue;
        };
        assert!(lends && reader.map_for_reading(len + 1).unwrap().is_none());
        assert_eq!(reader.map_for_reading(5).unwrap().unwrap().len(), 5);
        let read = |file: &dyn File, offset: u64, len: usize| {
            let mut bytes = vec![0; len];
            let count = file.read_at(&mut bytes, offset).unwrap();
            bytes.truncate(count);
            bytes
        };
        let of_map = || {
            let mut all = vec![0; map.len()];
            map.read_at(&mut all, 0).unwrap();
            all
        };
        assert_eq!(of_map(), bytes);
        assert_eq!(read(&*reader, 65_530, 20), bytes[65_530..65_550]);
        assert_eq!((read(&*reader, len - 2, 9), read(&*reader, len, 9)), (bytes[bytes.len() - 2..].to_vec(), vec![]));
        assert!(map.is_in_memory(0..map.len()) && map.populate(7..9));
        let writer = vfs.open(path, OpenMode::ReadWrite).unwrap();
        writer.preallocate(len).unwrap();
        assert!(reader.map_for_reading(len).unwrap().is_some(), "nothing was written");
        writer.write_at(b"new", 65_535).unwrap();
        assert_eq!(read(&*reader, 65_534, 5), [bytes[65_534], b'n', b'e', b'w', bytes[65_538]]);
        assert_eq!(of_map(), bytes);
        assert!(reader.map_for_reading(len).unwrap().is_none());
        writer.set_len(len - 1).unwrap();
        drop(writer);
        let again = reader.map_for_reading(len - 1).unwrap().unwrap();
        let mut three = [0; 3];
        again.read_at(&mut three, 65_535).unwrap();
        assert_eq!((&three, again.len() as u64), (b"new", len - 1));
        vfs.open(path, OpenMode::ReadWrite).unwrap().preallocate(len + 9).unwrap();
        assert!(reader.map_for_reading(len + 9).unwrap().is_none());
        assert_eq!(read(&*reader, len - 1, 12), [0; 10]);
    }
}

#[test]
fn mem_vfs_clones_share_files_and_locks() {
    let vfs = MemVfs::new();
    let twin = vfs.clone();
    vfs.open(Path::new("a"), OpenMode::CreateNew).unwrap().write_at(b"1", 0).unwrap();
    assert_eq!(twin.list(Path::new("")).unwrap().len(), 1);
    let _held = vfs.lock(Path::new("LOCK"), "me").unwrap().unwrap();
    assert_eq!(twin.lock(Path::new("./LOCK"), "you").unwrap().unwrap_err(), "me");
}
