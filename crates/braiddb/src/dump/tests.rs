use super::{
    DumpOptions, LoadOptions, check_dump,
    format::{Frame, FrameKind},
    lanes::show,
    reader::FrameReader,
};
use crate::{
    base::{Error, Result},
    codec::{Compression, MergeFunction},
    db::{
        Db, DumpedContent, DumpedEntry, EntrySink, Settings, TreeCodec, TreeOptions, Update,
        tests_common::small as small_settings,
    },
    platform::{MemVfs, OpenMode, Vfs},
};
use std::{
    io::{self, Read, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

#[derive(Default)]
struct Lines(Vec<String>, u64);

impl EntrySink for Lines {
    fn entry(&mut self, entry: &DumpedEntry<'_>) -> Result<()> {
        let content = match entry.content {
            DumpedContent::Value(bytes) | DumpedContent::Operands(bytes) if bytes.len() > 100 => {
                format!("{} bytes, {:x}", bytes.len(), crate::codec::hash64(bytes))
            }
            content => format!("{content:?}"),
        };
        let DumpedEntry { key, sequence, expires_us, is_beneath, .. } = entry;
        let key = key.escape_ascii();
        self.0.push(format!("{} {key} at {sequence} until {expires_us:?} beneath {is_beneath}: {content}", self.1));
        Ok(())
    }

    fn piece(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.push(format!("{} bytes, {:x}", bytes.len(), crate::codec::hash64(bytes)));
        Ok(())
    }
}

fn lines(mut dump: &[u8]) -> Vec<String> {
    let mut frames = FrameReader::begin(&mut dump).unwrap();
    let (source, mut frame) = frames.source().unwrap();
    let catalog = &source.catalog;
    let mut lines = Lines::default();
    for tree in &catalog.trees {
        lines.0.push(format!("{} {:?} {} {:?}", tree.id, tree.name, tree.multi, tree.state.options));
    }
    let rest = (&catalog.functions, &catalog.application_cursor, catalog.next_tree, catalog.retention);
    lines.0.push(format!("{} {rest:?}", frames.sequence));
    while frame.kind != FrameKind::End {
        lines.1 = u64::from(frame.tree);
        show(frame, frames.id, &mut lines).unwrap();
        frame = frames.next().unwrap();
    }
    frames.end(frame).unwrap();
    lines.0
}

fn dump(db: &Db) -> Vec<u8> {
    let mut out = Vec::new();
    db.dump(&mut out, DumpOptions::default()).unwrap();
    out
}

#[derive(Debug)]
struct Longest;

impl MergeFunction for Longest {
    fn apply(&self, _: &[u8], value: Option<&[u8]>, operand: &[u8]) -> std::result::Result<Vec<u8>, String> {
        Ok(value.filter(|value| value.len() >= operand.len()).unwrap_or(operand).to_vec())
    }
}

struct Builder(Settings);

impl Builder {
    fn create(self, create: bool) -> Builder {
        Builder(Settings { create, ..self.0 })
    }

    fn compression(self, compression: Compression) -> Builder {
        Builder(Settings { compression, ..self.0 })
    }

    fn log_retention(self, bytes: u64) -> Builder {
        Builder(Settings { log_retention_bytes: Some(bytes), ..self.0 })
    }

    fn merge_function(mut self, name: &str, function: Arc<dyn MergeFunction>) -> Builder {
        self.0.merge_functions.push((name.to_owned(), function));
        self
    }

    fn open(self, path: &str) -> Result<Db> {
        Db::open_with(self.0, Path::new(path))
    }

    fn load(self, path: &str, input: &mut dyn Read, options: LoadOptions<'_>) -> Result<super::LoadReport> {
        super::load(self.0, Path::new(path), input, options)
    }
}

fn builder(vfs: &Arc<MemVfs>, background_threads: usize) -> Builder {
    let vfs: Arc<dyn Vfs> = vfs.clone();
    let small = small_settings(&vfs);
    Builder(Settings { background_threads, memory: 16 << 20, blob_file_bytes: 4 << 20, ..small })
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn everything(vfs: &Arc<MemVfs>, threads: usize) -> Db {
    let db = builder(vfs, threads).merge_function("longest", Arc::new(Longest)).log_retention(1 << 20).open("/from");
    let db = db.unwrap();
    let plain = db.tree("plain").unwrap();
    for number in 0..2000_u32 {
        plain.put(format!("key {number:06}"), noise(number as usize % 300, u64::from(number))).unwrap();
    }
    plain.put(b"", b"the empty key").unwrap();
    plain.put(b"\xff\xff", b"").unwrap();
    plain.delete_range("key 000100".."key 000200").unwrap();
    let options = TreeOptions {
        compression: Some(Compression::None),
        blob_threshold: Some(100),
        ttl: None,
        codec: TreeCodec::new("tuple", "json").ok(),
    };
    let large = db.tree_with("large", options).unwrap();
    for number in 0..20_u8 {
        large.put([number], noise(1 << number, u64::from(number))).unwrap();
    }
    large.put_stream(b"stream", &mut noise(3_000_001, 5).as_slice()).unwrap();
    large.put_stream(b"stream of a piece", &mut noise(1_100_000, 6).as_slice()).unwrap();
    let ttl = TreeOptions { ttl: Some(Duration::from_secs(3600)), ..TreeOptions::default() };
    let passing = db.tree_with("passing", ttl).unwrap();
    passing.put(b"soon gone", b"1").unwrap();
    passing.put_with_ttl(b"gone", b"2", Duration::ZERO).unwrap();
    plain.put_with_ttl(b"later gone", noise(5000, 9), Duration::from_secs(7200)).unwrap();
    db.tree("to be dropped").unwrap().put(b"1", b"1").unwrap();
    db.drop_tree("to be dropped").unwrap();
    db.tree("empty").unwrap();
    let pairs = db.multi_tree("pairs").unwrap();
    for number in 0..500_u32 {
        pairs.add(format!("artist\0{}", number % 7), number.to_be_bytes()).unwrap();
    }
    merged(&db);
    let mut batch = db.batch();
    batch.set_application_cursor(b"here");
    batch.commit_with(crate::db::Durability::Sync).unwrap();
    db
}

/// Operands without a base.
fn merged(db: &Db) {
    let counts = db.tree("counts").unwrap();
    let (add, append) = (db.merge_function("add").unwrap(), db.merge_function("append").unwrap());
    let longest = db.merge_function("longest").unwrap();
    counts.put(b"counted", 40_u64.to_le_bytes()).unwrap();
    counts.put_with_ttl(b"passing", b"long, but passing", Duration::from_secs(3600)).unwrap();
    counts.put_with_ttl(b"past", b"very long, but past", Duration::ZERO).unwrap();
    counts.put_stream(b"stream", &mut noise(1_200_000, 77).as_slice()).unwrap();
    db.flush().unwrap();
    counts.merge(b"counted", &add, 2_u64.to_le_bytes()).unwrap();
    counts.merge(b"new", &append, b"a").unwrap();
    for key in [&b"passing"[..], b"past", b"stream", b"nothing"] {
        counts.merge(key, &longest, b"short").unwrap();
        counts.merge(key, &longest, b"shorter").unwrap();
    }
    db.flush().unwrap();
    counts.merge(b"passing", &longest, b"once more").unwrap();
    counts.merge(b"long operand", &longest, noise(700_000, 3)).unwrap();
}

#[test]
fn dump_of_loaded_database_equals_the_first_dump() {
    for (threads, compression) in [(0, Compression::Lz4), (2, Compression::None), (2, Compression::Zstd)] {
        let vfs = Arc::new(MemVfs::new());
        let db = everything(&vfs, threads);
        let mut first = Vec::new();
        let report = db.dump(&mut first, DumpOptions { compression, ..DumpOptions::default() }).unwrap();
        let known = lines(&first);
        let is_passing = |line: &&String| line.contains("until Some") && line.contains("beneath true");
        assert_eq!(known.iter().filter(is_passing).count(), 1);
        assert_eq!(report.dump_bytes, first.len() as u64);
        let info = check_dump(&mut first.as_slice()).unwrap();
        assert_eq!(info.trees.len() as u64, report.trees);
        assert_eq!(info.trees.iter().map(|tree| tree.records).sum::<u64>(), report.records);
        assert_eq!((info.sequence, info.merge_functions), (report.sequence, vec!["longest".to_owned()]));
        assert_eq!(info.application_cursor.as_deref(), Some(&b"here"[..]));
        let loaded = builder(&vfs, threads).load("/to", &mut first.as_slice(), LoadOptions::default()).unwrap();
        assert_eq!((loaded.records, loaded.bytes, loaded.trees), (report.records, report.bytes, report.trees));
        assert_eq!(loaded.sequence, report.sequence);
        let moved = builder(&vfs, threads).create(false).open("/to").unwrap();
        let mut second = lines(&dump(&moved));
        let at = known.iter().position(|line| line.starts_with(&format!("{} (", report.sequence))).unwrap();
        second[at].clone_from(&known[at]);
        assert_eq!(second, known);
        moved.compact().unwrap();
        assert!(moved.verify().unwrap().problems.is_empty());
        moved.close().unwrap();
        same_for_readers(
            &db,
            &builder(&vfs, threads).merge_function("longest", Arc::new(Longest)).open("/to").unwrap(),
        );
    }
}

fn same_for_readers(a: &Db, b: &Db) {
    let names = |db: &Db| db.trees().unwrap();
    assert_eq!(names(a), names(b));
    assert_eq!(a.application_cursor().unwrap(), b.application_cursor().unwrap());
    for tree in names(a) {
        if tree.multi {
            let pairs = |db: &Db| db.open_multi_tree(&tree.name).unwrap().iter().collect::<Result<Vec<_>>>().unwrap();
            assert_eq!(pairs(a), pairs(b));
            continue;
        }
        let (one, two) = (a.open_tree(&tree.name).unwrap(), b.open_tree(&tree.name).unwrap());
        let all = |tree: &crate::db::Tree| tree.iter().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(all(&one), all(&two));
        for (key, _) in all(&one) {
            assert_eq!(one.get_with_expiry(&key).unwrap(), two.get_with_expiry(&key).unwrap());
            let version = |tree: &crate::db::Tree| tree.get_versioned(&key).unwrap().unwrap().1;
            assert_eq!(version(&one).sequence(), version(&two).sequence());
            assert_ne!(version(&one), version(&two));
        }
    }
    b.open_tree("plain").unwrap().put(b"new", b"new").unwrap();
    b.tree("another").unwrap().put(b"1", b"1").unwrap();
    let counted = b.open_tree("counts").unwrap();
    counted.fetch_update(b"counted", |_| Update::Delete).unwrap();
    assert_eq!(counted.get(b"counted").unwrap(), None);
}

fn small() -> (Arc<MemVfs>, Vec<u8>) {
    let vfs = Arc::new(MemVfs::new());
    let db = builder(&vfs, 0).open("/small").unwrap();
    db.tree("t").unwrap().put(b"key", b"value").unwrap();
    db.multi_tree("m").unwrap().add(b"a", b"b").unwrap();
    let dumped = dump(&db);
    db.close().unwrap();
    (vfs, dumped)
}

fn load(vfs: &Arc<MemVfs>, mut dump: &[u8]) -> Result<super::LoadReport> {
    builder(vfs, 0).load("/to", &mut dump, LoadOptions::default())
}

fn is_nothing_left(vfs: &MemVfs) -> bool {
    vfs.list(Path::new("/to")).is_ok_and(|names| names.is_empty()) || vfs.list(Path::new("/to")).is_err()
}

#[test]
fn load_of_dump_with_flipped_bit_fails_and_leaves_nothing() {
    let (vfs, dumped) = small();
    for at in 0..dumped.len() {
        let mut flipped = dumped.clone();
        flipped[at] ^= 1 << (at % 8);
        let checked = check_dump(&mut flipped.as_slice()).unwrap_err();
        let loaded = load(&vfs, &flipped).unwrap_err();
        assert_eq!(checked.to_string(), loaded.to_string());
        let is_expected = checked.is_corruption() || (at < 8 && matches!(checked, Error::InvalidArgument(_)));
        assert!(is_expected, "byte {at}: {checked}");
        assert!(is_nothing_left(&vfs), "byte {at}");
    }
    load(&vfs, &dumped).unwrap();
}

#[test]
fn load_of_truncated_or_extended_dump_fails() {
    let (vfs, dumped) = small();
    for len in 0..dumped.len() {
        check_dump(&mut &dumped[..len]).unwrap_err();
        let error = load(&vfs, &dumped[..len]).unwrap_err();
        assert!(error.is_corruption() || len < 8, "{len}: {error}");
        assert!(is_nothing_left(&vfs));
    }
    let longer = [dumped.as_slice(), b"\0"].concat();
    assert!(load(&vfs, &longer).unwrap_err().to_string().contains("after its end"));
    let twice = [dumped.as_slice(), dumped.as_slice()].concat();
    assert!(check_dump(&mut twice.as_slice()).unwrap_err().is_corruption());
}

fn frames(dump: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = dump;
    let mut reader = FrameReader::begin(&mut rest).unwrap();
    let mut ends = vec![reader.offset()];
    loop {
        let frame = reader.next().unwrap();
        ends.push(reader.offset());
        if frame.kind == FrameKind::End {
            break;
        }
    }
    let mut at = 0;
    let cut = |end: u64| dump[std::mem::replace(&mut at, end as usize)..end as usize].to_vec();
    ends.into_iter().map(cut).collect()
}

#[test]
fn load_of_dump_with_missing_or_moved_frames_fails() {
    let (vfs, dumped) = small();
    let frames = frames(&dumped);
    assert!(frames.len() >= 5, "header, catalog, two trees, end");
    for left_out in 0..frames.len() {
        let others = frames.iter().enumerate().filter(|(index, _)| *index != left_out);
        let without = others.map(|(_, frame)| frame.as_slice()).collect::<Vec<_>>().concat();
        load(&vfs, &without).unwrap_err();
    }
    let mut swapped = frames;
    swapped.swap(2, 3);
    load(&vfs, &swapped.concat()).unwrap_err();
}

#[test]
fn load_of_dump_from_newer_version_is_unsupported() {
    let (vfs, dumped) = small();
    let resealed = |change: &dyn Fn(&mut [u8])| {
        let mut bytes = dumped.clone();
        change(&mut bytes);
        bytes
    };
    let newer = resealed(&|bytes| {
        bytes[8] = 2;
        let sum = crate::codec::checksum(0, 0, &bytes[..56]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    });
    let id = u64::from_le_bytes(dumped[32..40].try_into().unwrap());
    let unknown = resealed(&|bytes| {
        bytes[64 + 8] = 9;
        let sum = crate::codec::checksum(id, 64, &bytes[64..64 + 24]);
        bytes[64 + 24..64 + 32].copy_from_slice(&sum.to_le_bytes());
    });
    for bytes in [newer, unknown] {
        let error = load(&vfs, &bytes).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains("newer build"), "{error}");
    }
    let error = load(&vfs, b"PK\x03\x04, and so on").unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn load_into_nonempty_directory_leaves_it_unchanged() {
    let (vfs, dumped) = small();
    load(&vfs, &dumped).unwrap();
    let before = vfs.list(Path::new("/to")).unwrap().len();
    assert!(matches!(load(&vfs, &dumped).unwrap_err(), Error::AlreadyExists(_)));
    assert_eq!(vfs.list(Path::new("/to")).unwrap().len(), before);
    let db = builder(&vfs, 0).open("/to").unwrap();
    assert_eq!(db.open_tree("t").unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

#[test]
fn dump_and_load_after_io_error_end_their_threads() {
    let vfs = Arc::new(MemVfs::new());
    let db = everything(&vfs, 2);
    let len = dump(&db).len();
    for bytes in [0, 64, 1000, len / 2, len / 10 * 9] {
        let error = db.dump(Failing(bytes), DumpOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
    }
    let dumped = dump(&db);
    for len in [100, len / 3, len - 40] {
        let mut input = dumped[..len].chain(Failing(0));
        let error = builder(&vfs, 2).load("/to", &mut input, LoadOptions::default()).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(is_nothing_left(&vfs));
    }
}

#[test]
fn dump_under_concurrent_writes_is_one_commit() {
    let vfs = Arc::new(MemVfs::new());
    let db = builder(&vfs, 2).open("/from").unwrap();
    let (a, b) = (db.tree("a").unwrap(), db.tree("b").unwrap());
    let put = |number: u64| {
        let mut batch = db.batch();
        let key = (number % 1000).to_be_bytes();
        batch.put(&a, key, number.to_le_bytes()).put(&b, key, number.to_le_bytes());
        batch.commit_with(crate::db::Durability::Buffered).unwrap();
    };
    (0..1000).for_each(put);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1000..40_000_u64 {
                put(number);
                if number % 9000 == 0 {
                    db.flush().unwrap();
                }
            }
        });
        for round in 0..5 {
            let dumped = dump(&db);
            let at = format!("/to {round}");
            builder(&vfs, 0).load(&at, &mut dumped.as_slice(), LoadOptions::default()).unwrap();
            let moved = builder(&vfs, 0).open(&at).unwrap();
            let all = |name: &str| moved.open_tree(name).unwrap().iter().collect::<Result<Vec<_>>>().unwrap();
            assert_eq!(all("a"), all("b"));
            assert_eq!(all("a").len(), 1000);
        }
        writer.join().unwrap();
    });
}

#[test]
fn dump_of_damaged_database_fails_and_names_keys() {
    let vfs = Arc::new(MemVfs::new());
    let db = builder(&vfs, 0).compression(Compression::None).open("/from").unwrap();
    let tree = db.tree("t").unwrap();
    for number in 0..3000_u32 {
        tree.put(format!("key {number:06}"), noise(100, u64::from(number))).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    let run = vfs.list(Path::new("/from")).unwrap().into_iter().find(|file| file.name.ends_with(".run")).unwrap();
    let file = vfs.open(&Path::new("/from").join(&run.name), OpenMode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, run.len / 3).unwrap();
    file.write_at(&[byte[0] ^ 8], run.len / 3).unwrap();
    let db = builder(&vfs, 0).open("/from").unwrap();
    let mut out = Vec::new();
    let error = db.dump(&mut out, DumpOptions::default()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("the tree \"t\", keys from key 00"), "{error}");
    assert!(check_dump(&mut out.as_slice()).is_err());
}

/// A frame ended between operands and their base, and the base went to another loader thread.
#[test]
fn load_of_large_tree_of_operands_uses_several_lanes() {
    let vfs = Arc::new(MemVfs::new());
    // Without flushes, merges cannot turn operands into values.
    let from = Builder(Settings { memory: 256 << 20, memtable_bytes: Some(64 << 20), ..builder(&vfs, 2).0 });
    let db = from.open("/from").unwrap();
    let (tree, append) = (db.tree("t").unwrap(), db.merge_function("append").unwrap());
    tree.bulk_load((0..60_000_u32).map(|number| (number.to_be_bytes(), noise(200, u64::from(number))))).unwrap();
    for number in 0..60_000_u32 {
        tree.merge(number.to_be_bytes(), &append, noise(100 + number as usize % 101, 7)).unwrap();
    }
    let mut dumped = Vec::new();
    let options = DumpOptions { threads: Some(1), ..DumpOptions::default() };
    assert!(db.dump(&mut dumped, options).unwrap().records >= 60_000);
    let options = LoadOptions { threads: Some(3), ..LoadOptions::default() };
    builder(&vfs, 2).load("/to", &mut dumped.as_slice(), options).unwrap();
    let moved = builder(&vfs, 2).open("/to").unwrap();
    let rows = |db: &Db| -> Vec<_> {
        let rows =
            db.open_tree("t").unwrap().iter().map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.collect::<Result<_>>().unwrap()
    };
    assert!(rows(&db) == rows(&moved));
}

#[test]
fn load_of_large_tree_uses_several_lanes() {
    let vfs = Arc::new(MemVfs::new());
    let db = builder(&vfs, 2).open("/from").unwrap();
    let tree = db.tree("t").unwrap();
    tree.bulk_load((0..60_000_u32).map(|number| (number.to_be_bytes(), noise(200, u64::from(number))))).unwrap();
    for number in (0..60_000_u32).step_by(7) {
        tree.put(number.to_be_bytes(), b"changed").unwrap();
    }
    let mut seen = 0;
    let mut report = |progress: super::DumpProgress| seen = progress.records;
    let mut dumped = Vec::new();
    let options = DumpOptions { threads: Some(3), progress: Some(&mut report), ..DumpOptions::default() };
    assert_eq!(db.dump(&mut dumped, options).unwrap().records, 60_000);
    assert_eq!(seen, 60_000);
    let options = LoadOptions { threads: Some(3), ..LoadOptions::default() };
    builder(&vfs, 2).load("/to", &mut dumped.as_slice(), options).unwrap();
    let moved = builder(&vfs, 2).open("/to").unwrap();
    let (known, found) = (lines(&dumped), lines(&dump(&moved)));
    assert_eq!(known[2..], found[2..]);
    assert!(moved.verify().unwrap().problems.is_empty());
    let mut frame = Frame::pack(FrameKind::Records, 1, 7, Compression::None, vec![1, 2, 3]);
    frame.payload[0] ^= 1;
    assert!(frame.unpack(7).unwrap_err().is_corruption());
}
