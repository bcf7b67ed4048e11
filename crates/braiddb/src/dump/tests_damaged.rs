use super::{DumpOptions, LoadOptions, load};
use crate::{
    db::{
        Db, DumpGap, Settings,
        tests_common::{DIR, small},
    },
    platform::{Vfs, fault_vfs::FaultVfs},
};
use std::{path::Path, sync::Arc};

fn settings(vfs: &FaultVfs) -> Settings {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    Settings { memtable_bytes: Some(1 << 20), ..small(&vfs) }
}

fn incompressible(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// One damaged block made the dump fail.
#[test]
fn dump_with_skipped_damage_names_gaps_and_loads() {
    let vfs = FaultVfs::new(Path::new(DIR));
    let db = Db::open_with(settings(&vfs), Path::new(DIR)).unwrap();
    let tree = db.tree("t").unwrap();
    let key = |number: u32| format!("key {number:05}");
    for number in 0..500 {
        tree.put(key(number), b"value").unwrap();
    }
    tree.put(b"large", incompressible(3000)).unwrap();
    db.flush().unwrap();
    let mut files = vfs.files();
    drop((tree, db));
    let run = files.keys().rfind(|path| path.extension().is_some_and(|e| e == "run")).unwrap().clone();
    let blob = files.keys().rfind(|path| path.extension().is_some_and(|e| e == "blob")).unwrap().clone();
    files.get_mut(&run).unwrap()[3000] ^= 1;
    let last = files[&blob].len() - 100;
    files.get_mut(&blob).unwrap()[last - 1000..last].fill(1);
    let vfs = FaultVfs::of_files(Path::new(DIR), &files);
    let db = Db::open_with(settings(&vfs), Path::new(DIR)).unwrap();
    assert!(db.dump(&mut Vec::new(), DumpOptions::default()).unwrap_err().is_corruption());
    let (mut gaps, mut dump) = (Vec::new(), Vec::new());
    let mut report = |gap: &DumpGap| gaps.push(gap.clone());
    let options = DumpOptions { threads: Some(0), skip_damaged: Some(&mut report), ..DumpOptions::default() };
    let report = db.dump(&mut dump, options).unwrap();
    let [block, value] = gaps.as_slice() else { panic!("{gaps:?}") };
    assert_eq!((report.gaps, value.from.as_slice()), (2, &b"large"[..]));
    let number = |key: &[u8]| String::from_utf8(key[4..9].to_vec()).unwrap().parse::<u64>().unwrap();
    let (from, to) = (number(&block.from), number(block.to.as_deref().unwrap()));
    assert!(to - from < 200 && block.detail.contains(".run"), "{block:?}");
    load(settings(&vfs), Path::new("/new"), &mut dump.as_slice(), LoadOptions::default()).unwrap();
    let loaded = Db::open_with(settings(&vfs), Path::new("/new")).unwrap().open_tree("t").unwrap();
    let found: Vec<u64> = loaded.iter().map(|pair| number(&pair.unwrap().0)).collect();
    assert!(found.len() as u64 == report.records && found.len() > 300);
    assert!(found.iter().all(|found| *found <= from || *found >= to));
}
