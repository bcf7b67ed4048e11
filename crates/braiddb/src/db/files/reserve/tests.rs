use super::*;
use crate::db::tests_common::{Clock, DIR, mem};

const BYTES: u64 = 1 << 20;

/// A follower that was opened while the disk was full reported a full disk for ever.
#[test]
fn follower_reads_lengths_that_the_owner_changes() {
    let (vfs, runtime) = (mem(), Clock::new() as Arc<dyn Runtime>);
    let dir = Path::new(DIR);
    vfs.create_dir_all(dir).unwrap();
    let wanted = Wanted { bytes: BYTES, is_asked_for: true };
    let owner = Reserve::open(&vfs, &runtime, dir, OpenMode::ReadWrite);
    let early = Reserve::open(&vfs, &runtime, dir, OpenMode::Read);
    assert_eq!(early.bytes(), (0, 0));
    assert!(owner.keep(wanted, 0, false));
    assert_eq!(early.bytes(), (BYTES, BYTES));
    assert!(owner.release(Stage::Flush));
    let follower = Reserve::open(&vfs, &runtime, dir, OpenMode::Read);
    assert_eq!(follower.bytes(), (BYTES / 2, BYTES));
    assert!(owner.keep(wanted, 1, true));
    assert_eq!(follower.bytes(), (BYTES, BYTES));
    assert!(!follower.is_used() && !follower.release(Stage::Log));
}
