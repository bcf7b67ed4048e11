use super::{
    EntryOffset, KeyBlocks, Position, Run, RunMeta, RunOptions, RunWriter, TableContext,
    blob::{BlobFile, BlobRef, BlobValue, BlobWriter, BlobWriterContext},
    recent_writes::is_sample,
};
use crate::{
    base::{EntryKind, EntryRef, Error},
    cache::BlockCache,
    codec::{Compression, FILE_HEADER_LEN, checksum},
    platform::{File, OpenMode, Runtime, SystemRuntime, SystemVfs, Vfs},
};
use crossbeam_epoch::pin;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

const LATER_NS: u64 = 33_000_000_000;

#[derive(Debug, Default)]
struct World {
    inner: SystemVfs,
    time_ns: AtomicU64,
    reads: AtomicU64,
    is_failing: AtomicBool,
}

#[derive(Clone, Debug)]
struct Shared(Arc<World>);

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn File>,
    world: Arc<World>,
}

impl crate::platform::VfsLayer for Shared {
    fn inner(&self) -> &dyn Vfs {
        &self.0.inner
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let inner = self.0.inner.open(path, mode)?;
        Ok(Arc::new(CountedFile { inner, world: Arc::clone(&self.0) }))
    }
}

impl crate::platform::FileLayer for CountedFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    /// `None`, so that batched reads are counted too.
    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<crate::platform::SystemFile<'_>> {
        None
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.world.reads.fetch_add(1, Ordering::Relaxed);
        if self.world.is_failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk cannot read this"));
        }
        self.inner.read_at(buf, offset)
    }
}

impl Runtime for Shared {
    fn unix_time_us(&self) -> u64 {
        0
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.time_ns.load(Ordering::Relaxed)
    }
    fn random_u64(&self) -> u64 {
        7
    }
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        SystemRuntime::new().spawn(name, body)
    }
    fn sleep_us(&self, _micros: u64) {}
    fn process_name(&self) -> String {
        "a test".to_owned()
    }
}

/// `None` if the system does not map files.
struct Fixture {
    dir: tempfile::TempDir,
    world: Arc<World>,
    ctx: TableContext,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let dir = tempfile::tempdir().unwrap();
        let world = Arc::new(World::default());
        let vfs = Arc::new(Shared(Arc::clone(&world)));
        let mut ctx = TableContext::new(vfs.clone(), BlockCache::new(8 << 20));
        ctx.runtime = vfs;
        let fixture = Fixture { dir, world, ctx };
        let probe = fixture.ctx.vfs.open(&fixture.path("probe"), OpenMode::CreateNew).unwrap();
        probe.write_at(b"probe", 0).unwrap();
        let is_mapped = probe.map_for_reading(5).unwrap().is_some();
        if !is_mapped {
            eprintln!("skipped: this system maps no files of {}", fixture.dir.path().display());
        }
        is_mapped.then_some(fixture)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn reads(&self) -> u64 {
        self.world.reads.load(Ordering::Relaxed)
    }

    fn pass(&self, ns: u64) {
        self.world.time_ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn fail(&self, is_failing: bool) {
        self.world.is_failing.store(is_failing, Ordering::Relaxed);
    }

    fn flip(&self, path: &Path, at: u64) {
        let file = self.world.inner.open(path, OpenMode::ReadWrite).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 0x40], at).unwrap();
    }

    fn reader(&self) -> TableContext {
        TableContext { recent_writes: Arc::default(), ..self.ctx.clone() }
    }

    fn run(&self, rows: u32, compression: Compression) -> (Arc<Run>, RunMeta, Vec<Position>) {
        let (meta, positions) = self.write_run(rows, |writer, _| writer.set_compression(compression));
        (Run::open(&self.reader(), &self.path("000007.run"), &meta).unwrap(), meta, positions)
    }

    fn write_run(&self, rows: u32, prepare: impl Fn(&mut RunWriter, u32)) -> (RunMeta, Vec<Position>) {
        let path = self.path("000007.run");
        let options = RunOptions { key_blocks: KeyBlocks::Never, ..RunOptions::default() };
        let mut writer = RunWriter::create(&self.ctx, &path, 7, 99, &options).unwrap();
        let positions = (0..rows)
            .map(|row| {
                prepare(&mut writer, row);
                let (key, value) = (key(row), value(row));
                let sequence = u64::from(row) + 1;
                writer.add(EntryRef { key: &key, sequence, kind: EntryKind::Value, value: &value }).unwrap()
            })
            .collect();
        (writer.finish(|_, _| Ok(Vec::new())).unwrap(), positions)
    }
}

fn key(row: u32) -> Vec<u8> {
    format!("row{row:09}").into_bytes()
}

fn value(row: u32) -> Vec<u8> {
    format!("{row}-").into_bytes().repeat(20)
}

fn entry_offset(run: &Run, position: Position) -> EntryOffset {
    let offset = run.block(position.block, &pin()).unwrap().rows().unwrap().offsets(position.slot).next().unwrap();
    EntryOffset { block: position.block, offset: u16::try_from(offset).unwrap() }
}

fn check(run: &Run, positions: &[Position]) {
    for (row, &position) in (0..).zip(positions) {
        let guard = pin();
        let entry = run.read(position, &guard).unwrap();
        assert_eq!((entry.key, entry.value), (&*key(row), &*value(row)));
        assert_eq!(run.read_at(entry_offset(run, position), true, &guard).unwrap(), entry);
        run.prefetch(position);
        run.prefetch_rows(position, 3, true, None);
        run.ahead(position.block).prefetch::<2>(0);
        let pinned = run.pin(position.block).unwrap();
        assert_eq!(pinned.entry(position.slot).unwrap().value, value(row));
        assert_eq!(run.block(position.block, &guard).unwrap().entry(position.slot).unwrap().key, key(row));
    }
}

#[test]
fn read_of_uncompressed_blocks_uses_no_cache() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, _, positions) = fixture.run(20_000, Compression::None);
    check(&run, &positions);
    let stats = fixture.ctx.cache.stats();
    assert_eq!((stats.usage_bytes, stats.misses), (0, u64::from(run.block_count())));
    assert_eq!(run.cached_blocks(0..u16::MAX), u64::from(run.block_count()));
    // Once much of a region was read, the remaining blocks need no reads.
    assert!(fixture.reads() < u64::from(run.block_count()), "{} reads", fixture.reads());
    let reads = fixture.reads();
    check(&run, &positions);
    assert_eq!((fixture.reads(), fixture.ctx.cache.stats().misses), (reads, u64::from(run.block_count())));
    drop(run);

    fixture.ctx.vfs.remove(&fixture.path("000007.run")).unwrap();
    let (run, _, positions) = fixture.run(20_000, Compression::Lz4);
    check(&run, &positions);
    assert!(fixture.ctx.cache.stats().usage_bytes > 1 << 20);

    let ctx = TableContext { in_place: false, ..fixture.ctx.clone() };
    fixture.ctx.vfs.remove(&fixture.path("000007.run")).unwrap();
    let usage = fixture.ctx.cache.usage_bytes();
    let (_, meta, positions) = fixture.run(20_000, Compression::None);
    let run = Run::open(&ctx, &fixture.path("000007.run"), &meta).unwrap();
    check(&run, &positions);
    assert!(fixture.ctx.cache.usage_bytes() > usage, "who wants nothing read in place has it cached");
}

#[test]
fn read_of_damaged_block_fails_at_first_and_after_time_span() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, meta, positions) = fixture.run(20_000, Compression::None);
    let path = fixture.path("000007.run");
    let read = |run: &Run, at: usize| run.read(positions[at], &pin()).map(|entry| entry.value.to_vec());
    let is_damaged = |run: &Run, at: usize| read(run, at).is_err_and(|error| error.is_corruption());
    check(&run, &positions[..100]);
    fixture.flip(&path, 100);
    fixture.flip(&path, meta.file_bytes / 2);
    let middle = (0..positions.len()).find(|&at| is_damaged(&run, at)).expect("the damage was never read before");
    assert!(middle > 100 && positions[middle].block > 0);
    assert!(run.pin(positions[middle].block).is_err());
    assert!(run.block(positions[middle].block, &pin()).is_err());
    // Checked just now, so the damage goes unnoticed.
    assert!(read(&run, 50).is_ok());
    fixture.pass(LATER_NS);
    assert!(is_damaged(&run, 50));
    assert!(read(&run, middle / 2).is_ok());
    assert!(is_damaged(&run, 50) && is_damaged(&run, middle));
    fixture.flip(&path, 100);
    fixture.flip(&path, meta.file_bytes / 2);
    check(&run, &positions);
    fixture.pass(LATER_NS);
    check(&run, &positions);
    fixture.flip(&path, meta.file_bytes / 2);
    fixture.pass(LATER_NS);
    assert!(is_damaged(&run, middle));
}

#[test]
fn read_at_of_damaged_block_fails_at_first_and_after_time_span() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, meta, positions) = fixture.run(20_000, Compression::None);
    let path = fixture.path("000007.run");
    let spots = [50, 15_000].map(|at: usize| entry_offset(&run, positions[at]));
    let read = |entry_offset: EntryOffset| run.read_at(entry_offset, false, &pin()).map(|entry| entry.value.to_vec());
    fixture.flip(&path, 100);
    assert_eq!(read(spots[0]).unwrap(), value(50));
    fixture.pass(LATER_NS);
    assert!(read(spots[0]).unwrap_err().is_corruption());
    assert_eq!(read(spots[1]).unwrap(), value(15_000));
    fixture.flip(&path, 100);
    assert_eq!(read(spots[0]).unwrap(), value(50));
    let at_hand =
        |entry_offset: EntryOffset| run.entry_at_hand(entry_offset, run.moment()).map(|entry| entry.value.to_vec());
    assert_eq!(at_hand(spots[0]), Some(value(50)));
    fixture.pass(LATER_NS);
    assert!(spots.iter().all(|&entry_offset| at_hand(entry_offset).is_none()), "nothing was checked in this time");
    assert_eq!(read(spots[1]).unwrap(), value(15_000));
    assert_eq!((at_hand(spots[0]), at_hand(spots[1])), (None, Some(value(15_000))));
    assert_eq!(read(spots[0]).unwrap(), value(50));
    // Offsets outside of the block, the run or its entries are refused.
    let (block, last) = (spots[0].block, u16::try_from(meta.blocks).unwrap());
    for wrong in [
        EntryOffset { block, offset: 4095 },
        EntryOffset { block, offset: u16::MAX },
        EntryOffset { block: last, offset: 0 },
    ] {
        assert!(read(wrong).unwrap_err().is_corruption());
        assert_eq!(at_hand(wrong), None);
    }
    let guard = pin();
    assert_eq!(run.read_at(spots[1], true, &guard).unwrap().sequence, 15_001);
    fixture.pass(LATER_NS);
    fixture.fail(true);
    assert!(read(spots[1]).is_err_and(|error| !error.is_corruption()), "the disk cannot read it");
}

#[test]
fn read_of_recently_written_block_skips_check() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("000007.run");
    let (meta, positions) = fixture.write_run(20_000, |writer, _| writer.set_compression(Compression::None));
    let run = Run::open(&fixture.ctx, &path, &meta).unwrap();
    let blocks = u64::from(run.block_count());
    let is_damaged_at = |run: &Run, at: usize| run.read(positions[at], &pin()).is_err_and(|e| e.is_corruption());
    let is_damaged = |run: &Run| is_damaged_at(run, 0);
    let samples: Vec<u64> = (0..blocks).filter(|&block| is_sample(99, block)).collect();
    assert!(samples.len() as u64 > blocks / 20 && (samples.len() as u64) < blocks / 12 && samples[0] > 0);
    let sampled = positions.iter().position(|at| u64::from(at.block) == samples[0]).unwrap();
    fixture.flip(&path, samples[0] * 4096 + 2000);
    assert!(is_damaged_at(&run, sampled));
    fixture.flip(&path, samples[0] * 4096 + 2000);
    check(&run, &positions);
    assert_eq!(fixture.ctx.cache.stats().checked, samples.len() as u64);
    let reads = fixture.reads();
    fixture.flip(&path, 100);
    assert!(!is_damaged(&run) && fixture.reads() == reads, "nobody looks so soon");
    let another = Run::open(&fixture.reader(), &path, &meta).unwrap();
    assert!(is_damaged(&another), "who has not written it looks");
    // Readers of many rows at least check the entry count.
    let count_at = run.index().unit(0, run.note(0).len()).end - 1;
    assert!(run.rows_in_place(0, run.moment()).unwrap().is_ok());
    fixture.flip(&path, count_at);
    assert!(run.rows_in_place(0, run.moment()).unwrap().is_err_and(|error| error.is_corruption()));
    fixture.flip(&path, count_at);
    // Handles opened before and after check the block.
    fixture.pass(LATER_NS);
    let late = Run::open(&fixture.ctx, &path, &meta).unwrap();
    assert!(is_damaged(&run) && is_damaged(&late));
    fixture.flip(&path, 100);
    check(&late, &positions);
    assert_eq!(fixture.ctx.cache.stats().checked, samples.len() as u64 + blocks);

    drop((run, late, another));
    fixture.ctx.vfs.remove(&path).unwrap();
    let by_row = |row| if row / 100 == 100 { Compression::Lz4 } else { Compression::None };
    let (meta, positions) = fixture.write_run(20_000, |writer, row| writer.set_compression(by_row(row)));
    let run = Run::open(&fixture.ctx, &path, &meta).unwrap();
    check(&run, &positions);
    let stats = fixture.ctx.cache.stats();
    assert!(stats.misses >= blocks + u64::from(run.block_count()) && stats.usage_bytes > 0, "{stats:?}");
}

#[test]
fn read_of_recently_written_value_skips_check() {
    let Some(fixture) = Fixture::new() else { return };
    let writer = blob_writer(&fixture);
    let put = |at: u8| writer.append(b"key", &blob(20_000, at), Compression::None).unwrap();
    let old: Vec<BlobRef> = (0..200).map(put).collect();
    fixture.pass(LATER_NS);
    let new: Vec<BlobRef> = (0..200).chain(0..200).map(put).collect();
    let path = fixture.path("000005.blob");
    for reference in old.iter().chain(&new) {
        fixture.flip(&path, reference.offset + 15_000);
    }
    let file = BlobFile::open(&fixture.ctx, fixture.dir.path(), 5).unwrap();
    let is_damaged = |reference: &&BlobRef| file.read(reference).is_err_and(|error| error.is_corruption());
    assert!(old.iter().all(|reference| is_damaged(&reference)), "they were written long ago");
    let damaged = new.iter().filter(is_damaged).count();
    assert!(damaged > 0 && damaged < 100, "most, but not all, are not looked at so soon: {damaged}");
    let new = *new.iter().find(|reference| file.read(reference).is_ok()).unwrap();
    assert!(file.read_uncached(&new).unwrap_err().is_corruption());
    let another = BlobFile::open(&fixture.reader(), fixture.dir.path(), 5).unwrap();
    assert!(another.read(&new).unwrap_err().is_corruption(), "who has not written it looks");
    assert!(file.read(&BlobRef { checksum: 1, ..new }).unwrap_err().is_corruption());
    assert!(file.read(&BlobRef { offset: new.offset + 8, stored_len: 1000, ..new }).unwrap_err().is_corruption());
    fixture.pass(LATER_NS);
    assert!(file.read(&new).unwrap_err().is_corruption());
}

#[test]
fn read_from_failing_disk_returns_error() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, _, positions) = fixture.run(20_000, Compression::None);
    fixture.fail(true);
    let error = run.read(positions[0], &pin()).unwrap_err();
    assert!(matches!(&error, Error::Io { source, .. } if source.to_string().contains("cannot read")), "{error}");
    assert!(matches!(run.pin(0).unwrap_err(), Error::Io { .. }));
    fixture.fail(false);
    check(&run, &positions[..10]);
    fixture.fail(true);
    check(&run, &positions[..10]);
    fixture.pass(LATER_NS);
    assert!(matches!(run.read(positions[0], &pin()).unwrap_err(), Error::Io { .. }));
}

#[test]
fn pin_after_run_drop_keeps_block() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, _, positions) = fixture.run(20_000, Compression::None);
    let pins: Vec<_> = (0..run.end().block).map(|block| run.pin(block).unwrap()).collect();
    run.mark_obsolete();
    drop(run);
    assert!(!fixture.path("000007.run").exists());
    for (row, position) in (0..).zip(&positions) {
        assert_eq!(pins[usize::from(position.block)].entry(position.slot).unwrap().value, value(row));
    }
}

fn blob_writer(fixture: &Fixture) -> BlobWriter {
    BlobWriter::new(BlobWriterContext {
        vfs: Arc::clone(&fixture.ctx.vfs),
        dir: fixture.dir.path().to_owned(),
        runtime: Arc::clone(&fixture.ctx.runtime),
        next_file_number: Arc::new(|| 5),
        file_len: 1 << 30,
        recent_writes: Arc::clone(&fixture.ctx.recent_writes),
        sync_failed: Arc::new(|| {}),
    })
}

fn blob(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

fn is_in_place(file: &BlobFile, reference: &BlobRef, expected: &[u8]) -> bool {
    let value = file.read(reference).unwrap();
    assert!(*value == *expected);
    matches!(value, BlobValue::InPlace(_))
}

#[test]
fn read_of_value_in_growing_file_is_in_place() {
    let Some(fixture) = Fixture::new() else { return };
    let writer = blob_writer(&fixture);
    let lengths = [0, 1, 65_535, 65_536, 65_537, 300_000, 1 << 20];
    let put = |at: usize| writer.append(b"key", &blob(lengths[at % 7], at as u8), Compression::None).unwrap();
    let mut references: Vec<BlobRef> = (0..7).map(put).collect();
    let file = BlobFile::open(&fixture.ctx, fixture.dir.path(), 5).unwrap();
    for round in 0..2 {
        let reads = fixture.reads();
        for (at, reference) in references.iter().enumerate() {
            assert!(is_in_place(&file, reference, &blob(lengths[at % 7], at as u8)));
        }
        assert_eq!(fixture.reads(), reads, "round {round}");
    }
    references.push(put(7));
    references.push(put(9));
    for _ in 0..3 {
        assert!(!is_in_place(&file, &references[8], &blob(lengths[2], 9)));
    }
    fixture.pass(LATER_NS);
    assert!(is_in_place(&file, &references[8], &blob(lengths[2], 9)));
    references.push(put(10));
    let kept = file.read(&references[6]).unwrap();
    assert!(!is_in_place(&file, &references[9], &blob(lengths[3], 10)));
    for at in 11..40 {
        references.push(put(at));
    }
    assert!(is_in_place(&file, references.last().unwrap(), &blob(lengths[39 % 7], 39)));
    assert!(*kept == *blob(lengths[6], 6), "who has a part of the old map keeps it");
    let beyond = BlobRef { offset: references[38].offset + (1 << 22), ..references[38] };
    assert!(file.read(&beyond).unwrap_err().is_corruption());
    let packed = writer.append(b"key", &blob(300_000, 3), Compression::Lz4).unwrap();
    for _ in 0..3 {
        assert!(!is_in_place(&file, &packed, &blob(300_000, 3)), "what is compressed cannot be read in place");
    }
    drop(file);
    assert!(*kept == *blob(lengths[6], 6));
}

#[test]
fn read_of_damaged_value_fails_at_first_and_after_time_span() {
    let Some(fixture) = Fixture::new() else { return };
    let writer = blob_writer(&fixture);
    let put = |at: u8| writer.append(b"key", &blob(200_000, at), Compression::None).unwrap();
    let references: Vec<BlobRef> = (0..3).map(put).collect();
    let file = BlobFile::open(&fixture.reader(), fixture.dir.path(), 5).unwrap();
    assert!(is_in_place(&file, &references[0], &blob(200_000, 0)));
    let path = fixture.path("000005.blob");
    for reference in &references[..2] {
        fixture.flip(&path, reference.offset + 150_000);
    }
    assert!(file.read(&references[1]).unwrap_err().is_corruption());
    assert!(file.read(&references[0]).is_ok(), "it was checked a moment ago");
    assert!(file.read_uncached(&references[0]).unwrap_err().is_corruption());
    fixture.pass(LATER_NS);
    assert!(file.read(&references[0]).unwrap_err().is_corruption());
    assert!(file.read(&references[0]).unwrap_err().is_corruption());
    assert!(is_in_place(&file, &references[2], &blob(200_000, 2)));
    // A reference into a checked value is refused.
    let wrong = BlobRef { offset: references[2].offset + 8, stored_len: 1000, ..references[2] };
    assert!(file.read(&wrong).unwrap_err().is_corruption());
    let other = BlobRef { checksum: 1, ..references[2] };
    assert!(file.read(&other).unwrap_err().is_corruption());
}

#[test]
fn read_of_block_that_differs_from_index_is_corruption() {
    let Some(fixture) = Fixture::new() else { return };
    let (_, meta, positions) = fixture.run(1000, Compression::None);
    let path = fixture.path("000007.run");
    let file = fixture.world.inner.open(&path, OpenMode::ReadWrite).unwrap();
    // The first unit has 13 bytes more than its block; the last byte is the entry count.
    let start = FILE_HEADER_LEN as u64;
    let mut header = [0; 13];
    file.read_exact_at(&mut header, start).unwrap();
    let len = u32::from_le_bytes(*header.last_chunk().unwrap()) as usize;
    let mut unit = vec![0; 13 + len];
    file.read_exact_at(&mut unit, start).unwrap();
    *unit.last_mut().unwrap() -= 1;
    let sum = checksum(99, start, &unit[8..]);
    unit[..8].copy_from_slice(&sum.to_le_bytes());
    file.write_at(&unit, start).unwrap();
    for in_place in [true, false] {
        let ctx = TableContext { in_place, ..fixture.reader() };
        let run = Run::open(&ctx, &path, &meta).unwrap();
        let error = run.read(positions[0], &pin()).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("malformed"), "{error}");
        assert!(run.read(positions[999], &pin()).is_ok());
    }
}

#[test]
fn read_of_large_block_needs_one_call() {
    let Some(fixture) = Fixture::new() else { return };
    let path = fixture.path("000007.run");
    let options = RunOptions {
        compression: Compression::None,
        block_bytes: 1 << 16,
        key_blocks: KeyBlocks::Never,
        ..RunOptions::default()
    };
    let mut writer = RunWriter::create(&fixture.ctx, &path, 7, 99, &options).unwrap();
    let large = blob(700_000, 1);
    let mut positions = Vec::new();
    for row in 0..1000u32 {
        let (key, small) = (key(row), value(row));
        let value = if row == 500 { &large } else { &small };
        let entry = EntryRef { key: &key, sequence: 1, kind: EntryKind::Value, value };
        positions.push(writer.add(entry).unwrap());
    }
    let meta = writer.finish(|_, _| Ok(Vec::new())).unwrap();
    let run = Run::open(&fixture.ctx, &path, &meta).unwrap();
    for (row, reads_max) in [(0, 1), (500, 3), (999, 1)] {
        let reads = fixture.reads();
        let wanted = if row == 500 { large.clone() } else { value(row as u32) };
        assert!(run.read(positions[row], &pin()).unwrap().value == wanted);
        assert!(fixture.reads() - reads <= reads_max, "{} reads", fixture.reads() - reads);
    }
    assert_eq!(fixture.ctx.cache.usage_bytes(), 0);
}

#[test]
fn rechecks_of_blocks_are_due_at_different_times() {
    let Some(fixture) = Fixture::new() else { return };
    let (run, _, positions) = fixture.run(20_000, Compression::None);
    check(&run, &positions);
    let checked = |since: u64| fixture.ctx.cache.stats().checked - since;
    let (blocks, before) = (u64::from(run.block_count()), checked(0));
    let mut due = Vec::new();
    for _ in 0..8 {
        fixture.pass(LATER_NS / 8);
        let before = checked(0);
        check(&run, &positions);
        due.push(checked(before));
    }
    assert!(checked(before) >= blocks && due.iter().all(|&due| due < blocks / 2), "{due:?} of {blocks}");
    assert_eq!(run.cached_blocks(0..u16::MAX), blocks);
    fixture.pass(3 * LATER_NS);
    assert_eq!(run.cached_blocks(0..u16::MAX), 0);
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::disallowed_methods, reason = "the advice is given by descriptor")]
fn blocks_in_memory_counts_page_cache() {
    const TMPFS: u64 = 0x0102_1994;
    let Some(fixture) = Fixture::new() else { return };
    if rustix::fs::statfs(fixture.dir.path()).unwrap().f_type as u64 & 0xffff_ffff == TMPFS {
        eprintln!("skipped: {} is always in memory", fixture.dir.path().display());
        return;
    }
    for compression in [Compression::None, Compression::Lz4] {
        let (run, meta, _) = fixture.run(20_000, compression);
        let (all, path) = (u64::from(run.block_count()), run.path().to_owned());
        let is_expected = compression == Compression::None;
        assert_eq!(run.blocks_in_memory(0..u16::MAX), if is_expected { all } else { 0 }, "{compression:?}");
        drop(run);
        let file = std::fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let run = Run::open(&fixture.reader(), &path, &meta).unwrap();
        // Near its index, which was just read.
        let left = run.blocks_in_memory(0..u16::MAX);
        assert!(!is_expected || left < all, "{left} of {all}");
        drop(run);
        std::fs::remove_file(&path).unwrap();
    }
}
