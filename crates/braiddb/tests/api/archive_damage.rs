//! Damaged segments of a log archive.

use braiddb::{
    Builder, Durability,
    backup::{DirectoryTarget, RestorePoint},
    options::Tuning,
    platform::{MemVfs, OpenMode, Vfs},
};
use std::{path::Path, sync::Arc};

fn builder(vfs: &Arc<dyn Vfs>) -> Builder {
    let builder = Builder::new().vfs(Arc::clone(vfs)).memory(8 << 20).tuning(Tuning::new().log_segment_bytes(64 << 10));
    builder.background_threads(0).durability(Durability::Buffered).log_archive("/archive")
}

/// A restore to the latest commit mistook a segment with a damaged header for one left by a killed
/// process, and silently restored an older commit.
#[test]
fn restore_with_damaged_segment_header_is_refused() {
    let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
    let db = builder(&vfs).open("/db").unwrap();
    let target = DirectoryTarget::open_in(Arc::clone(&vfs), "/backups").unwrap();
    let tree = db.tree("t").unwrap();
    db.backup(&target).unwrap();
    tree.put(b"a", b"1").unwrap();
    let before = db.archive_now().unwrap();
    tree.put(b"a", b"2").unwrap();
    let last = db.archive_now().unwrap();
    db.close().unwrap();
    let dirs = vfs.list_directories(Path::new("/archive")).unwrap();
    let life = Path::new("/archive").join(&dirs[0]);
    let names: Vec<String> = vfs.list(&life).unwrap().into_iter().map(|entry| entry.name).collect();
    let restore =
        |dir: &str| Builder::new().vfs(Arc::clone(&vfs)).restore_to(&target, "/archive", RestorePoint::Latest, dir);
    assert_eq!(restore("/whole").unwrap().sequence, last);
    let mut seen = (0, 0);
    for (number, name) in names.iter().enumerate() {
        let path = life.join(name);
        let file = vfs.open(&path, OpenMode::ReadWrite).unwrap();
        let mut header = vec![0; 136];
        file.read_exact_at(&mut header, 0).unwrap();
        file.write_at(&[0; 136], 0).unwrap();
        let ended = restore(&format!("/unfinished {number}"));
        if ended.is_ok_and(|restored| restored.sequence == before) {
            seen.0 += 1;
            let mut damaged = header.clone();
            damaged[40] ^= 4;
            file.write_at(&damaged, 0).unwrap();
            let refused = restore(&format!("/damaged {number}")).unwrap_err();
            assert!(refused.is_corruption() && refused.to_string().contains(name.as_str()), "{refused}");
            seen.1 += 1;
        }
        file.write_at(&header, 0).unwrap();
    }
    assert_eq!(seen, (1, 1), "{names:?}");
}
