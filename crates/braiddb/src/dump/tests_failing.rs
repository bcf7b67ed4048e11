use super::{DumpOptions, LoadOptions, LoadReport, load};
use crate::{
    base::{Error, Result},
    db::{
        Db,
        tests_common::{mem, small},
    },
    platform::Vfs,
};
use std::{path::Path, sync::Arc};

fn load_from(vfs: &Arc<dyn Vfs>, dump: &[u8], bad_operands: bool) -> Result<LoadReport> {
    let options = LoadOptions { bad_operands, ..LoadOptions::default() };
    load(small(vfs), Path::new("/to"), &mut { dump }, options)
}

#[test]
fn dump_of_failing_record_names_it_and_continues() {
    for threads in [0, 2] {
        let vfs = mem();
        let settings = crate::db::Settings { background_threads: threads, ..small(&vfs) };
        let db = Db::open_with(settings, Path::new("/from")).unwrap();
        let tree = db.tree("t").unwrap();
        let add = db.merge_function("add").unwrap();
        tree.put(b"a", b"1").unwrap();
        tree.put(b"bad value", b"no number").unwrap();
        tree.merge(b"bad value", &add, [1; 8]).unwrap();
        tree.merge_unchecked(b"bad operand", 1, b"1");
        tree.merge(b"good", &add, [1; 8]).unwrap();
        tree.put(b"z", b"2").unwrap();
        let mut named = Vec::new();
        let mut note = |e: &Error| named.push(e.to_string());
        let mut dump = Vec::new();
        let report = db.dump(&mut dump, DumpOptions { failing: Some(&mut note), ..DumpOptions::default() }).unwrap();
        assert_eq!((report.failing, report.records), (2, 6));
        assert!(named[0].contains("\"bad operand\" of the tree \"t\""), "{named:?}");
        assert!(named[1].contains("\"bad value\" of the tree \"t\""), "{named:?}");

        let Err(Error::InvalidArgument(reason)) = load_from(&vfs, &dump, false) else { panic!("it is refused") };
        assert!(reason.contains("\"bad operand\" of the tree \"t\"") && reason.contains("--bad-operands"), "{reason}");
        assert!(reason.contains("8 bytes"), "{reason}");
        assert_eq!(load_from(&vfs, &dump, true).unwrap().records, 6);
        let loaded = Db::open_with(small(&vfs), Path::new("/to")).unwrap();
        let tree = loaded.open_tree("t").unwrap();
        assert_eq!(tree.iter().filter(Result::is_ok).count(), 3);
        assert_eq!(tree.iter().count(), 5);
        db.tree("t").unwrap().delete(b"bad operand").unwrap();
        let (mut dump, to) = (Vec::new(), mem());
        assert_eq!(db.dump(&mut dump, DumpOptions::default()).unwrap().failing, 1);
        assert_eq!(load_from(&to, &dump, false).unwrap().records, 5);
    }
}
