//! The log's tail after a kill: reported by read-only opens, kept by the first open for writing.

use crate::{
    db::{
        Db, Durability, Follower, Settings,
        tests_common::{Clock, DIR, fault, killed, open, small},
    },
    platform::{Vfs, fault_vfs::FaultVfs},
};
use std::path::{Path, PathBuf};

fn durable(vfs: &FaultVfs) -> Settings {
    Settings { durability: Durability::Sync, runtime: Clock::new(), ..small(&fault(vfs)) }
}

fn left_by_a_kill() -> FaultVfs {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(durable(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..5_u8 {
        tree.put([i], [i; 20]).unwrap();
    }
    tree.put("last", b"last durable value").unwrap();
    killed(&vfs)
}

fn place_of(vfs: &FaultVfs, bytes: &[u8]) -> (PathBuf, usize) {
    let files = vfs.files();
    let logs = files.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "wal"));
    let found = |file: &Vec<u8>| file.windows(bytes.len()).position(|part| part == bytes);
    logs.filter_map(|(path, file)| Some((path.clone(), found(file)?))).next().expect("a segment with these bytes")
}

fn with_flipped_bit(vfs: &FaultVfs, path: &Path, bit: usize) -> FaultVfs {
    let mut files = vfs.files();
    files.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
    FaultVfs::of_files(Path::new(DIR), &files)
}

fn read_only(vfs: &FaultVfs) -> Db {
    Follower::open_with(durable(vfs), Path::new(DIR), None).unwrap().db()
}

fn names(vfs: &FaultVfs) -> Vec<String> {
    vfs.list(Path::new(DIR)).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// Regression: a flipped bit in the last durable record lost the commit, and read-only opens did
/// not report it.
#[test]
fn read_only_open_notes_each_flipped_bit_of_the_last_durable_record() {
    let vfs = left_by_a_kill();
    assert_eq!(read_only(&vfs).stats().log_tail_note, None);
    let (path, at) = place_of(&vfs, b"last durable value");
    let end = at + b"last durable value".len();
    // Search backward for the record header.
    let begin =
        vfs.read(&path)[..at].windows(2).rposition(|magic| magic[0] == 0xf9 && magic[1] & 0xf8 == 0xb0).unwrap();
    for bit in 8 * begin..8 * end {
        let damaged = with_flipped_bit(&vfs, &path, bit);
        let db = read_only(&damaged);
        assert_eq!(db.open_tree("t").unwrap().get("last").unwrap(), None, "bit {bit}");
        let note = db.stats().log_tail_note.unwrap_or_else(|| panic!("bit {bit} of {begin} to {end} is not noted"));
        let place = format!("{} at offset {begin}", path.display());
        assert!(note.contains(&place) && note.contains("the last commit before it is "), "bit {bit}: {note}");
    }
}

/// Regression: a command kept the cut tail in a file, then removed it at its own clean close.
#[test]
fn close_of_the_open_that_cut_a_tail_keeps_the_copy_until_the_next_clean_close() {
    let vfs = left_by_a_kill();
    let (path, at) = place_of(&vfs, b"last durable value");
    let damaged = with_flipped_bit(&vfs, &path, 8 * at);
    let copies = || names(&damaged).into_iter().filter(|name| name.starts_with("LOG-TAIL-")).count();
    open(durable(&damaged)).unwrap().close().unwrap();
    assert_eq!(copies(), 1);
    drop(read_only(&damaged));
    assert_eq!(copies(), 1);
    open(durable(&damaged)).unwrap().close().unwrap();
    assert_eq!(copies(), 0);
}

/// Regression: the first open for writing discarded the damaged record.
#[test]
fn open_for_writing_keeps_the_cut_tail_until_a_clean_close() {
    let vfs = left_by_a_kill();
    let (path, at) = place_of(&vfs, b"last durable value");
    let damaged = with_flipped_bit(&vfs, &path, 8 * at);
    let db = open(durable(&damaged)).unwrap();
    assert!(db.stats().log_tail_note.is_some());
    let kept = names(&damaged).into_iter().find(|name| name.starts_with("LOG-TAIL-")).expect("a copy of the tail");
    let bytes = damaged.read(&Path::new(DIR).join(&kept));
    assert!(bytes.windows(17).any(|part| part == b"ast durable value"), "{}", bytes.escape_ascii());
    assert!(bytes.starts_with(b"torn or damaged tail of the log: "), "{}", bytes.escape_ascii());
    let again = killed(&damaged);
    drop(db);
    let db = open(durable(&again)).unwrap();
    assert!(names(&again).contains(&kept));
    db.close().unwrap();
    assert!(!names(&again).contains(&kept));
    assert_eq!(read_only(&again).stats().log_tail_note, None);
}

/// Zeros and stale bytes of a recycled segment are no damage.
#[test]
fn stale_bytes_of_a_recycled_segment_are_not_noted() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = open(durable(&vfs)).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..2_000_u32 {
        tree.put(i.to_be_bytes(), [7; 30]).unwrap();
        if i % 50 == 0 {
            db.flush().unwrap();
        }
        if i % 7 == 0 {
            assert_eq!(read_only(&killed(&vfs)).stats().log_tail_note, None, "after {i}");
        }
    }
    assert!(db.engine().log.wal.as_ref().unwrap().stats().segments_recycled > 0);
    db.close().unwrap();
    assert_eq!(read_only(&vfs).stats().log_tail_note, None);
}
