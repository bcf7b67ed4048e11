use super::{DumpOptions, LoadOptions, load};
use crate::{
    db::{
        Db, Settings, Tree, TreeOptions,
        tests_common::{Clock, SECOND_NS, mem, small},
    },
    platform::{Runtime, UNIX_EPOCH},
};
use std::{path::Path, sync::Arc, time::Duration};

fn ends(tree: &Tree) -> Vec<(Vec<u8>, Option<u128>)> {
    let (mut rows, mut cursor) = (Vec::new(), tree.cursor());
    while cursor.next().unwrap() {
        let end = cursor.expires().unwrap().map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_micros());
        rows.push((cursor.key().to_vec(), end));
    }
    rows
}

#[test]
fn load_of_dump_keeps_expiry_times() {
    let (clock, vfs) = (Clock::new(), mem());
    let settings = || Settings { runtime: Arc::clone(&clock) as Arc<dyn Runtime>, ..small(&vfs) };
    let from = Db::open_with(settings(), Path::new("/from")).unwrap();
    let ttl = TreeOptions { ttl: Some(Duration::from_secs(100)), ..TreeOptions::default() };
    let (plain, passing) = (from.tree("plain").unwrap(), from.tree_with("passing", ttl).unwrap());
    let append = from.merge_function("append").unwrap();
    let at = |us: u64| UNIX_EPOCH + Duration::from_micros(us);
    plain.put_until(b"odd", b"1", at(1_010_000_007)).unwrap();
    plain.put_until(b"merged", b"1", at(1_010_000_009)).unwrap();
    plain.merge(b"merged", &append, b"2").unwrap();
    plain.put_until(b"long", vec![7; 700_000], at(1_020_000_001)).unwrap();
    plain.put_until(b"past", b"1", at(1_000_500_000)).unwrap();
    plain.put(b"for ever", b"1").unwrap();
    passing.put(b"by the tree", b"1").unwrap();
    passing.put_with_ttl(b"own", b"1", Duration::from_secs(5)).unwrap();
    clock.advance(SECOND_NS);
    let before = (ends(&plain), ends(&passing));
    assert_eq!((before.0.len(), before.1.len()), (4, 2));
    let mut dump = Vec::new();
    from.dump(&mut dump, DumpOptions::default()).unwrap();
    // The load does not restart any TTL.
    clock.advance(SECOND_NS);
    load(settings(), Path::new("/to"), &mut dump.as_slice(), LoadOptions::default()).unwrap();
    let to = Db::open_with(settings(), Path::new("/to")).unwrap();
    let (plain, passing) = (to.open_tree("plain").unwrap(), to.open_tree("passing").unwrap());
    assert_eq!((ends(&plain), ends(&passing)), before);
    to.compact().unwrap();
    assert_eq!((ends(&plain), ends(&passing)), before);
    clock.advance(9 * SECOND_NS);
    assert_eq!(plain.get(b"merged").unwrap().as_deref(), Some(&b"2"[..]), "the operand stands on nothing now");
    assert!(!plain.contains(b"odd").unwrap() && plain.contains(b"long").unwrap());
    assert!(!passing.contains(b"own").unwrap() && passing.contains(b"by the tree").unwrap());
}
