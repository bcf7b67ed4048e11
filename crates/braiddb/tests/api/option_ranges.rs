//! Options out of range.

use braiddb::{
    Builder, Error, SharedRuntime,
    bulk::BulkOptions,
    dump::{DumpOptions, LoadOptions},
    options::Tuning,
    platform::{MemVfs, Vfs},
};
use std::{path::Path, sync::Arc, time::Duration};

fn mem() -> Arc<dyn Vfs> {
    Arc::new(MemVfs::new())
}

/// Options out of range were silently clamped; too many threads ended the process.
#[test]
fn open_with_option_out_of_range_names_range_and_creates_nothing() {
    type Set = fn(Builder) -> Builder;
    let bad: [(&str, &str, Set); 16] = [
        ("memory is 0:", "65536", |b| b.memory(0)),
        ("memory", "65536", |b| b.memory(usize::MAX)),
        ("background_threads is 100000:", "0 to 1024", |b| b.background_threads(100_000)),
        ("memtable_bytes", "1024", |b| b.tuning(Tuning::new().memtable_bytes(0))),
        ("memtable_bytes", "1024", |b| b.tuning(Tuning::new().memtable_bytes(usize::MAX))),
        ("partition_bytes", "4096", |b| b.tuning(Tuning::new().partition_bytes(1))),
        ("unindexed_runs is 1:", "2 to 1024", |b| b.tuning(Tuning::new().unindexed_runs(1))),
        ("unindexed_runs", "2 to 1024", |b| b.tuning(Tuning::new().unindexed_runs(usize::MAX))),
        ("garbage_percent is 99:", "5 to 40", |b| b.garbage_percent(99)),
        ("garbage_percent is 4:", "5 to 40", |b| b.garbage_percent(4)),
        ("log_segment_bytes", "1024", |b| b.tuning(Tuning::new().log_segment_bytes(0))),
        ("block_bytes is 0:", "64 to 65536", |b| b.tuning(Tuning::new().block_bytes(0))),
        ("block_bytes", "64 to 65536", |b| b.tuning(Tuning::new().block_bytes(1 << 20))),
        ("blob_file_bytes is 0:", "1 to", |b| b.tuning(Tuning::new().blob_file_bytes(0))),
        ("open_files_max is 3:", "4 to", |b| b.open_files_max(3)),
        ("reader_age_max", "1 to", |b| b.reader_age_max(Duration::ZERO)),
    ];
    for (name, range, set) in bad {
        let vfs = mem();
        let builder = || set(Builder::new().vfs(Arc::clone(&vfs)));
        let opened = [
            builder().open("/db").map(drop),
            builder().open_read_only("/db").map(drop),
            builder().open_follower("/db").map(drop),
        ];
        for error in opened.map(Result::unwrap_err) {
            let text = error.to_string();
            assert!(matches!(error, Error::InvalidArgument(_)), "{name} {text}");
            assert!(text.contains(name) && text.contains(range), "{name} {range}: {text}");
        }
        assert!(vfs.list(Path::new("/db")).is_err(), "{name}: nothing was made");
    }
    for builder in [
        SharedRuntime::builder().memory(0),
        SharedRuntime::builder().background_threads(100_000),
        SharedRuntime::builder().open_files_max(0),
    ] {
        assert!(matches!(builder.build(), Err(Error::InvalidArgument(_))));
    }
}

#[test]
fn open_with_options_at_ends_of_range_succeeds() {
    let least = |b: Builder| {
        let tuning = Tuning::new().memtable_bytes(1 << 10).partition_bytes(4 << 10).unindexed_runs(2);
        let b = b.memory(64 << 10).background_threads(0).tuning(tuning).garbage_percent(5).open_files_max(4);
        // The earlier call's values stay.
        b.tuning(Tuning::new().log_segment_bytes(1 << 10).block_bytes(64))
    };
    let small = |b: Builder| b.blob_threshold(0).tuning(Tuning::new().blob_file_bytes(1));
    let most = |b: Builder| {
        let tuning = Tuning::new().block_bytes(64 << 10).unindexed_runs(1024).blob_file_bytes(u64::MAX);
        b.garbage_percent(40).blob_threshold(usize::MAX).tuning(tuning)
    };
    let all: [&dyn Fn(Builder) -> Builder; 3] = [&least, &small, &most];
    for (which, set) in all.into_iter().enumerate() {
        let db = set(Builder::new().background_threads(0)).open_in_memory().unwrap();
        let tree = db.tree("t").unwrap();
        (0..300_u32).for_each(|key| _ = tree.put(key.to_be_bytes(), key.to_be_bytes().repeat(20)).unwrap());
        db.compact().unwrap();
        assert_eq!(tree.iter().count(), 300, "{which}");
    }
}

/// Options of a load, a dump and a follower.
#[test]
fn call_with_option_out_of_range_names_range_and_changes_nothing() {
    let vfs = mem();
    let builder = || Builder::new().vfs(Arc::clone(&vfs));
    let db = builder().open("/db").unwrap();
    let tree = db.tree("t").unwrap();
    let said = |done: braiddb::Result<()>, name: &str| match done {
        Err(Error::InvalidArgument(text)) => assert!(text.contains(name), "{text}"),
        other => panic!("{name}: {other:?}"),
    };
    let options = BulkOptions::new().memory(1);
    said(tree.bulk_load_unsorted([("key", "value")], options).map(drop), "65536");
    assert!(tree.is_empty().unwrap());
    let mut dump = Vec::new();
    said(db.dump(&mut dump, DumpOptions::new().threads(65)).map(drop), "0 to 64");
    assert!(dump.is_empty());
    db.dump(&mut dump, DumpOptions::default()).unwrap();
    let options = LoadOptions::new().threads(65);
    said(builder().load("/new", &mut dump.as_slice(), options).map(drop), "0 to 64");
    assert!(vfs.list(Path::new("/new")).is_err());
    said(builder().refresh_every(Some(Duration::ZERO)).open_follower("/db").map(drop), "refresh_every");
}
