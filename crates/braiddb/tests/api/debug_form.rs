//! Debug forms of handles.

use braiddb::{Builder, watch::WatchOptions};

/// The story: the debug form of a handle printed the engine's internals, with all keys and values
/// of an in-memory database.
#[test]
fn debug_of_every_handle_is_short_and_shows_no_data() {
    let db = Builder::new().open_in_memory().unwrap();
    let (tree, many) = (db.tree("albums").unwrap(), db.multi_tree("many").unwrap());
    for key in 0..2000_u32 {
        tree.put(format!("secretkey{key}"), format!("secretvalue{key}").repeat(10)).unwrap();
        many.add(format!("secretkey{key}"), "secretvalue").unwrap();
    }
    let (tx, alone) = (db.begin().unwrap(), db.begin_exclusive().unwrap());
    tx.put(&tree, "secretkey", "secretvalue").unwrap();
    tx.get(&tree, "secretkey7").unwrap();
    let mut batch = db.batch();
    batch.put(&tree, "secretkey", "secretvalue");
    let (mut cursor, mut iter, mut pairs) = (tree.cursor(), tree.iter(), many.iter());
    let mut values = tx.range(&tree, ..);
    cursor.seek(b"secretkey5").unwrap();
    let _rows = (iter.next(), pairs.next(), values.next());
    let add = db.merge_function("add").unwrap();
    let shown = [
        format!("{db:?}"),
        format!("{tree:?}"),
        format!("{many:?}"),
        format!("{tx:?}"),
        format!("{alone:?}"),
        format!("{batch:?}"),
        format!("{cursor:?}"),
        format!("{iter:?}"),
        format!("{pairs:?}"),
        format!("{values:?}"),
        format!("{:?}", db.snapshot()),
        format!("{:?}", many.cursor()),
        format!("{add:?}"),
        format!("{:?}", tree.stream("secretkey1").unwrap()),
        format!("{:?}", tree.bulk_loader().unwrap()),
        format!("{:?}", many.bulk_loader().unwrap()),
        format!("{:?}", tree.stream_writer("secretkey").unwrap()),
        format!("{:?}", db.watch(WatchOptions::new())),
    ];
    for text in &shown {
        assert!(text.len() < 300 && !text.contains("secret"), "{} bytes: {}", text.len(), &text[..text.len().min(600)]);
    }
    assert!(shown[0].contains("/memory") && shown[1].contains("albums"), "{} {}", shown[0], shown[1]);
}
