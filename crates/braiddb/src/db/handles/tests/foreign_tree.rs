//! Handles of one database refuse trees of another.

use crate::{
    base::Error,
    db::{
        Batch, Durability, WatchOptions,
        tests_common::{mem, open, small},
    },
};

/// Trees of different databases have the same ids: calls with a foreign tree used the wrong tree.
#[test]
fn call_with_tree_of_another_database_is_refused() {
    let (one, two) = (open(small(&mem())).unwrap(), open(small(&mem())).unwrap());
    let (mine, other) = (one.tree("mine").unwrap(), two.tree("theirs").unwrap());
    let (_, other_many) = (one.multi_tree("many").unwrap(), two.multi_tree("many").unwrap());
    mine.put(b"k", b"1").unwrap();
    let is_refused = |error: Option<Error>| assert!(matches!(error, Some(Error::InvalidArgument(_))), "{error:?}");
    let write = |fill: &dyn Fn(&mut Batch)| {
        let mut batch = one.batch();
        batch.put(&mine, b"k", b"2");
        fill(&mut batch);
        is_refused(batch.commit_with(Durability::Buffered).err());
    };
    write(&|batch| assert!(!batch.put(&other, b"k", b"2").is_empty()));
    write(&|batch| assert!(!batch.delete(&other, b"k").is_empty()));
    write(&|batch| assert!(!batch.delete_range(&other, ..).is_empty()));
    write(&|batch| assert!(!batch.add(&other_many, b"k", b"v").is_empty()));
    write(&|batch| assert!(!batch.delete(&other_many, b"k").is_empty()));
    let snapshot = one.snapshot();
    is_refused(snapshot.get(&other, b"k").err());
    is_refused(snapshot.get_versioned(&other, b"k").err());
    is_refused(snapshot.get_with_expiry(&other, b"k").err());
    is_refused(snapshot.contains(&other, b"k").err());
    is_refused(snapshot.multi_get(&other, &[b"k"]).err());
    is_refused(snapshot.stream(&other, b"k").err());
    let other_view = snapshot.multi_tree(&other_many);
    is_refused(other_view.contains(b"k").err());
    is_refused(other_view.contains_pair(b"k", b"v").err());
    is_refused(other_view.count_values(b"k").err());
    is_refused(other_view.count(..).err());
    is_refused(other_view.is_empty().err());
    is_refused(snapshot.iter(&other).next().and_then(std::result::Result::err));
    is_refused(snapshot.range(&other, ..).next_back().and_then(std::result::Result::err));
    is_refused(other_view.values(b"k").next().and_then(std::result::Result::err));
    is_refused(other_view.iter().next().and_then(std::result::Result::err));
    is_refused(snapshot.cursor(&other).seek_first().err());
    is_refused(other_view.cursor().seek_first().err());
    is_refused(one.watch(WatchOptions::new().tree(&other)).err());
    is_refused(one.watch(WatchOptions::new().multi_tree(&other_many)).err());
    assert_eq!(mine.get(b"k").unwrap().as_deref(), Some(b"1".as_slice()));
    assert_eq!(snapshot.get(&mine, b"k").unwrap().as_deref(), Some(b"1".as_slice()));
}
