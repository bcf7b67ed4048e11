//! The scrubber finds damage in files that no reader touches.

use crate::{
    db::{
        Settings,
        maintenance::scrub,
        tests_common::{DIR, bounded, fault, open, small},
    },
    platform::{OpenMode, Vfs, fault_vfs::FaultVfs},
};
use std::path::Path;

#[test]
fn scrubber_reports_damage_before_any_read() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let settings = Settings { scrub_bytes_per_second: 1 << 30, background_threads: 2, ..small(&fault(&vfs)) };
    let db = open(settings).unwrap();
    let tree = db.tree("t").unwrap();
    for i in 0..200_u32 {
        tree.put(i.to_be_bytes(), [7; 40]).unwrap();
    }
    db.compact().unwrap();
    let scrubbed = db.clone();
    bounded("a first pass", move || {
        while scrubbed.stats().scrub.passes == 0 {
            std::thread::yield_now();
        }
    });
    scrub::whole_pass_for_tests(db.engine());
    let stats = db.stats().scrub;
    assert!(stats.damaged_units == 0 && stats.bytes > 0 && stats.last_pass_us > 0, "{stats:?}");
    let run = vfs.files().into_keys().rfind(|path| path.extension().is_some_and(|e| e == "run")).unwrap();
    let file = vfs.open(&run, OpenMode::ReadWrite).unwrap();
    file.write_at(&[0x55; 3], 300).unwrap();
    scrub::whole_pass_for_tests(db.engine());
    assert_eq!(db.stats().scrub.damaged_units, 1);
    assert!(db.stats().background_errors == 0);
    drop(tree);
    bounded("closing", move || db.close().unwrap());
    assert!(vfs.list(Path::new(DIR)).is_ok());
}
