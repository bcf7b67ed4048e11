use super::*;
use crate::{
    base::{EntryKind, EntryRef, FileId, RangeTombstone, Result, SequenceNumber, limits::MAX_INTERNAL_KEY_LEN},
    cache::BlockCache,
    codec::{ByteReader, Compression},
    platform::{MemVfs, OpenMode, fault_vfs::FaultVfs},
};
use crossbeam_epoch::pin;
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

const FILE_ID: FileId = 0x0123_4567_89ab_cdef;

type Model = BTreeMap<(Vec<u8>, Reverse<SequenceNumber>), (EntryKind, Vec<u8>)>;

type Row<'a> = (&'a (Vec<u8>, Reverse<SequenceNumber>), &'a (EntryKind, Vec<u8>));

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.next() % 23) as u8).collect()
    }
}

fn context(cache_bytes: usize) -> TableContext {
    TableContext::new(Arc::new(FaultVfs::new(&dir())), BlockCache::new(cache_bytes))
}

#[test]
fn cached_blocks_after_write_without_maps_is_zero() {
    let ctx = TableContext::new(Arc::new(MemVfs::new()), BlockCache::new(8 << 20));
    ctx.vfs.create_dir_all(&dir()).unwrap();
    let mut writer = RunWriter::create(
        &ctx,
        &path(),
        7,
        FILE_ID,
        &RunOptions { compression: Compression::None, ..RunOptions::default() },
    )
    .unwrap();
    for key in 0..5000u32 {
        let key = key.to_be_bytes();
        writer.add(EntryRef { key: &key, sequence: 1, kind: EntryKind::Value, value: &key }).unwrap();
    }
    let meta = writer.finish(no_view).unwrap();
    let run = Run::open(&ctx, &path(), &meta).unwrap();
    assert_eq!(run.cached_blocks(0..u16::MAX), 0);
    run.read(Position { block: 0, slot: 0 }, &pin()).unwrap();
    assert_eq!(run.cached_blocks(0..u16::MAX), 1);
}

fn elsewhere(ctx: &TableContext) -> TableContext {
    TableContext { recent_writes: Arc::default(), ..ctx.clone() }
}

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn path() -> PathBuf {
    dir().join("000007.run")
}

fn options(compression: Compression, block_bytes: usize, key_block: bool) -> RunOptions {
    let key_blocks = if key_block { KeyBlocks::Always } else { KeyBlocks::Never };
    RunOptions { compression, block_bytes, key_blocks, write_bytes: 4096, ..RunOptions::default() }
}

fn no_view(_: FileId, _: u64) -> Result<Vec<u8>> {
    Ok(Vec::new())
}

/// Keys share prefixes; some have many versions.
fn random_model(seed: u64, entries: usize, enormous: bool) -> Model {
    let mut random = Random(seed);
    let mut model = Model::new();
    let mut key = Vec::new();
    while model.len() < entries {
        if random.below(3) > 0 {
            let len = match random.below(100) {
                0 if enormous => random.below(65_000),
                1 if enormous => MAX_INTERNAL_KEY_LEN - random.below(3),
                2..10 => random.below(600),
                _ => random.below(24),
            };
            key.truncate(random.below(key.len() + 1).min(len));
            key.extend(random.bytes(len - key.len()));
        }
        let kind = match random.below(5) {
            0 => EntryKind::Tombstone,
            1 => EntryKind::BlobRef,
            _ => EntryKind::Value,
        };
        let len = match random.below(200) {
            _ if kind == EntryKind::Tombstone => 0,
            0 if enormous => random.below(300_000),
            1..20 => random.below(5000),
            _ => random.below(60),
        };
        let sequence = random.next() >> (2 + random.below(60));
        model.insert((key.clone(), Reverse(sequence)), (kind, random.bytes(len)));
    }
    model
}

fn entry_of<'a>(((key, sequence), (kind, value)): Row<'a>) -> EntryRef<'a> {
    EntryRef { key, sequence: sequence.0, kind: *kind, value }
}

fn tombstones() -> Vec<RangeTombstone> {
    let tombstone =
        |start: &[u8], end: &[u8], sequence| RangeTombstone { start: start.into(), end: end.into(), sequence };
    vec![tombstone(&[4], &[9, 9], 77), tombstone(&[1, 2], &[200], 5), tombstone(&[9], &[9], 1)]
}

fn write(ctx: &TableContext, model: &Model, options: &RunOptions) -> (RunMeta, Vec<Position>) {
    let mut writer = RunWriter::create(&elsewhere(ctx), &path(), 7, FILE_ID, options).unwrap();
    let positions = model.iter().map(|pair| writer.add(entry_of(pair)).unwrap()).collect();
    assert_eq!(writer.entries(), model.len() as u64);
    for tombstone in tombstones() {
        writer.add_range_tombstone(tombstone);
    }
    writer.add_blob_use(12, 100);
    writer.add_blob_use(9, 50);
    writer.add_blob_use(12, 1);
    let (blocks, estimate) = (writer.block_count(), writer.estimated_bytes());
    let meta = writer.finish(no_view).unwrap();
    assert_eq!(meta.blocks, blocks);
    assert!(estimate.abs_diff(meta.file_bytes) < meta.file_bytes / 4 + (64 << 10), "{estimate} of {}", meta.file_bytes);
    (meta, positions)
}

fn build(ctx: &TableContext, model: &Model, options: &RunOptions) -> (Arc<Run>, Vec<Position>) {
    let (meta, positions) = write(ctx, model, options);
    (Run::open(ctx, &path(), &meta).unwrap(), positions)
}

fn check_meta(meta: &RunMeta, model: &Model) {
    assert_eq!(meta.entries, model.len() as u64);
    assert_eq!(meta.tombstones, model.values().filter(|(kind, _)| *kind == EntryKind::Tombstone).count() as u64);
    assert_eq!(
        meta.raw_bytes,
        model.iter().map(|((key, _), (_, value))| (key.len() + value.len()) as u64).sum::<u64>()
    );
    let sequences = || model.keys().map(|(_, sequence)| sequence.0).chain([77, 5]);
    assert_eq!((meta.min_sequence, meta.max_sequence), (sequences().min().unwrap(), sequences().max().unwrap()));
    assert_eq!(meta.range_tombstones, 2);
    let uses = [BlobUse { file: 9, bytes: 50, values: 1 }, BlobUse { file: 12, bytes: 101, values: 2 }];
    assert_eq!(meta.blob_uses, uses);
    let mut bytes = Vec::new();
    meta.encode(&mut bytes);
    assert_eq!(RunMeta::decode(&mut ByteReader::new(&bytes)).as_ref(), Some(meta));
    for len in 0..bytes.len() {
        assert_eq!(RunMeta::decode(&mut ByteReader::new(&bytes[..len])), None);
    }
}

fn check_reads(run: &Arc<Run>, model: &Model, positions: &[Position], random: &mut Random) {
    let (mut scan, mut keys) = (run.scan(Position::default()), run.keys(Position::default()));
    let mut at = Position::default();
    for (pair, &position) in model.iter().zip(positions) {
        let entry = entry_of(pair);
        assert_eq!(at, position);
        assert!(scan.next().unwrap() && keys.next().unwrap());
        assert_eq!((scan.entry(), scan.position()), (entry, position));
        assert_eq!((keys.entry(), keys.position()), (EntryRef { value: &[], ..entry }, position));
        assert_eq!((keys.key(), keys.sequence(), keys.kind()), (entry.key, entry.sequence, entry.kind));
        run.prefetch(position);
        assert_eq!(run.read(position, &pin()).unwrap(), entry);
        at = run.advance(at, 1);
    }
    assert_eq!(at, run.end());
    assert!(!scan.next().unwrap() && !keys.next().unwrap() && !scan.next().unwrap());
    assert_eq!((scan.position(), keys.position()), (run.end(), run.end()));
    for block in 0..run.block_count() as u16 {
        let pinned = run.pin(block).unwrap();
        assert_eq!(pinned.entries(), run.block_entries(block));
        for slot in 0..pinned.entries() {
            let index = positions.binary_search(&Position { block, slot }).unwrap();
            assert_eq!(pinned.entry(slot).unwrap(), entry_of(model.iter().nth(index).unwrap()));
        }
        assert!(pinned.entry(pinned.entries()).unwrap_err().is_corruption());
    }
    check_jumps(run, model, positions, random);
}

fn check_jumps(run: &Arc<Run>, model: &Model, positions: &[Position], random: &mut Random) {
    let all: Vec<EntryRef<'_>> = model.iter().map(entry_of).collect();
    let position = |index: usize| positions.get(index).copied().unwrap_or_else(|| run.end());
    for _ in 0..60 {
        let (from, steps) = (random.below(all.len() + 1), random.below(100));
        assert_eq!(run.advance(position(from), steps as u32), position(from + steps));
        assert_eq!(run.retreat(position(from)), from.checked_sub(1).map(position));
        let (mut scan, mut keys) = (run.scan(position(from)), run.keys(position(from)));
        for (index, &entry) in all.iter().enumerate().skip(from).take(steps) {
            assert!(scan.next().unwrap() && keys.next().unwrap());
            assert_eq!((scan.entry(), keys.key(), keys.sequence()), (entry, entry.key, entry.sequence));
            assert_eq!((scan.position(), keys.position()), (position(index), position(index)));
        }
    }
    assert_eq!(run.advance(Position::default(), u32::MAX), run.end());
    assert_eq!(run.advance(Position { block: u16::MAX, slot: 3 }, 1), run.end());
    assert!(run.read(run.end(), &pin()).unwrap_err().is_corruption());
    assert!(run.read(Position { block: u16::MAX, slot: 0 }, &pin()).unwrap_err().is_corruption());
    assert!(run.read(Position { block: 0, slot: run.block_entries(0) }, &pin()).unwrap_err().is_corruption());
    assert!(run.pin(run.end().block).unwrap_err().is_corruption());
}

#[test]
fn random_entries_round_trip_on_all_paths() {
    for (seed, compression) in [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate() {
        for (block_bytes, key_block) in [(64, true), (300, false), (4096, true), (4096, false), (65_536, true)] {
            for cache_bytes in [20 << 10, 32 << 20] {
                let ctx = context(cache_bytes);
                let mut random = Random(seed as u64 * 1000 + block_bytes as u64);
                let model = random_model(random.next(), 300 + random.below(200), cache_bytes > 1 << 20);
                let (run, positions) = build(&ctx, &model, &options(compression, block_bytes, key_block));
                check_meta(run.meta(), &model);
                check_reads(&run, &model, &positions, &mut random);
                assert_eq!(run.verify().unwrap(), run.meta().file_bytes);
                assert_eq!(run.range_tombstones().newest_covering(&[5], 1000), 77);
                assert_eq!(Run::read_meta(&ctx, &path(), 7).unwrap(), *run.meta());
            }
        }
    }
}

#[test]
fn keys_of_many_small_entries_fill_several_chunks() {
    let mut random = Random(3);
    let mut model = Model::new();
    for _ in 0..30_000 {
        let key = random.bytes(16);
        model.insert((key, Reverse(random.next() % 100_000)), (EntryKind::Value, random.bytes(20)));
    }
    for compression in [Compression::None, Compression::Lz4] {
        let ctx = context(8 << 20);
        let (run, positions) = build(&ctx, &model, &options(compression, 4096, true));
        assert!(run.index().chunks.len() > 5);
        check_jumps(&run, &model, &positions, &mut random);
        run.verify().unwrap();
        let blocks = run.block_count() as usize;
        let resident = run.resident_bytes() - size_of::<Run>() - 24 * run.index().chunks.len();
        assert!(resident <= 12 * blocks + 400, "{resident} bytes for {blocks} blocks");
        assert_eq!(ctx.cache.stats().misses, 1, "the jumps read one block");
        for &position in &positions {
            run.read(position, &pin()).unwrap();
        }
        assert_eq!(ctx.cache.stats().misses, blocks as u64);
    }
}

#[test]
fn run_without_values_or_entries_round_trips() {
    let ctx = context(1 << 20);
    let (run, _) = build(&ctx, &Model::new(), &RunOptions::default());
    assert_eq!((run.meta().smallest.as_slice(), run.meta().largest.as_slice()), (&[1, 2][..], &[200][..]));
    assert_eq!((run.meta().min_sequence, run.meta().max_sequence), (5, 77));
    assert_eq!((run.end(), run.retreat(run.end())), (Position::default(), None));
    assert!(!run.scan(run.end()).next().unwrap() && !run.keys(run.end()).next().unwrap());
    run.verify().unwrap();
    ctx.vfs.remove(&path()).unwrap();
    let writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &RunOptions::default()).unwrap();
    let meta = writer.finish(no_view).unwrap();
    assert_eq!((meta.entries, meta.min_sequence, meta.max_sequence), (0, 0, 0));
    Run::open(&ctx, &path(), &meta).unwrap().verify().unwrap();
}

#[test]
fn add_beyond_maximum_blocks_fails() {
    let ctx = context(1 << 20);
    let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &options(Compression::None, 64, false)).unwrap();
    let value = [0; 60];
    let add = |writer: &mut RunWriter, at: u32| {
        writer.add(EntryRef { key: &at.to_be_bytes(), sequence: 1, kind: EntryKind::Value, value: &value })
    };
    for at in 0..60_000 {
        assert_eq!(add(&mut writer, at).unwrap(), Position { block: at as u16, slot: 0 });
    }
    assert!(add(&mut writer, 60_000).is_err());
    let meta = writer.finish(no_view).unwrap();
    assert_eq!(meta.blocks, 60_000);
    let run = Run::open(&ctx, &path(), &meta).unwrap();
    assert_eq!(run.read(Position { block: 59_999, slot: 0 }, &pin()).unwrap().key, 59_999u32.to_be_bytes());
    assert_eq!(run.end(), Position { block: 60_000, slot: 0 });
}

#[test]
fn add_of_too_large_entry_fails_and_keeps_others() {
    let ctx = context(1 << 20);
    assert!(RunWriter::create(&ctx, &path(), 7, FILE_ID, &options(Compression::None, 63, false)).is_err());
    assert!(RunWriter::create(&ctx, &path(), 7, FILE_ID, &options(Compression::None, 65_537, false)).is_err());
    let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &RunOptions::default()).unwrap();
    let key = vec![1; MAX_INTERNAL_KEY_LEN + 1];
    assert!(writer.add(EntryRef { key: &key, sequence: 1, kind: EntryKind::Value, value: &[] }).is_err());
    writer.add(EntryRef { key: &key[1..], sequence: 1, kind: EntryKind::Value, value: &[] }).unwrap();
    let meta = writer.finish(no_view).unwrap();
    Run::open(&ctx, &path(), &meta).unwrap().verify().unwrap();
    assert!(RunWriter::create(&ctx, &path(), 7, FILE_ID, &RunOptions::default()).is_err(), "the file exists");
}

#[test]
#[should_panic(expected = "in order")]
fn add_out_of_order_panics() {
    let ctx = context(1 << 20);
    let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &RunOptions::default()).unwrap();
    for sequence in [1, 2] {
        writer.add(EntryRef { key: b"a", sequence, kind: EntryKind::Value, value: &[] }).unwrap();
    }
}

#[test]
fn embedded_view_is_at_announced_offset() {
    let ctx = context(1 << 20);
    let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &RunOptions::default()).unwrap();
    writer.add(EntryRef { key: b"a", sequence: 3, kind: EntryKind::Value, value: b"b" }).unwrap();
    let view = Random(1).bytes(700_000);
    let mut promised = None;
    let meta = writer
        .finish(|file_id, offset| {
            promised = Some((file_id, offset));
            Ok(view.clone())
        })
        .unwrap();
    assert_eq!(promised, Some((FILE_ID, meta.view_offset)));
    assert_eq!((meta.view_offset % 4096, meta.view_bytes), (0, 700_000));
    let run = Run::open(&ctx, &path(), &meta).unwrap();
    let mut bytes = vec![0; view.len()];
    run.file().read_exact_at(&mut bytes, meta.view_offset).unwrap();
    assert_eq!(bytes, view);
    run.verify().unwrap();
    let file = ctx.vfs.open(&path(), OpenMode::ReadWrite).unwrap();
    file.write_at(&[1], meta.view_offset - 1).unwrap();
    assert!(run.verify().unwrap_err().is_corruption());
    file.write_at(&[0], meta.view_offset - 1).unwrap();
    file.write_at(&[bytes[5] ^ 1], meta.view_offset + 5).unwrap();
    assert!(run.verify().unwrap_err().is_corruption());
}

#[test]
fn obsolete_run_after_last_handle_is_removed() {
    let ctx = context(1 << 20);
    let (run, _) = build(&ctx, &random_model(1, 20, false), &RunOptions::default());
    let other = run.clone();
    run.mark_obsolete();
    drop(run);
    other.read(Position::default(), &pin()).unwrap();
    assert_eq!(ctx.vfs.list(&dir()).unwrap().len(), 1);
    drop(other);
    assert_eq!(ctx.vfs.list(&dir()).unwrap().len(), 0);
}

fn read_all(ctx: &TableContext, path: &Path, meta: &RunMeta) -> Result<Model> {
    let run = Run::open(ctx, path, meta)?;
    let mut model = Model::new();
    let mut scan = run.scan(Position::default());
    while scan.next()? {
        let entry = scan.entry();
        assert_eq!(run.read(scan.position(), &pin())?, entry);
        model.insert((entry.key.to_vec(), Reverse(entry.sequence)), (entry.kind, entry.value.to_vec()));
    }
    let mut keys = run.keys(Position::default());
    while keys.next()? {
        assert!(model.contains_key(&(keys.key().to_vec(), Reverse(keys.sequence()))));
    }
    Ok(model)
}

#[test]
fn read_after_flipped_bit_or_truncation_is_corruption() {
    for (compression, key_block) in [(Compression::None, true), (Compression::Lz4, false), (Compression::Zstd, true)] {
        let ctx = context(1 << 20);
        let model = random_model(6, 8, false);
        let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &options(compression, 512, key_block)).unwrap();
        for pair in &model {
            writer.add(entry_of(pair)).unwrap();
        }
        tombstones().into_iter().for_each(|tombstone| writer.add_range_tombstone(tombstone));
        let meta = writer.finish(|_, _| Ok(vec![7; 100])).unwrap();
        assert_eq!(read_all(&ctx, &path(), &meta).unwrap(), model);
        let file = ctx.vfs.open(&path(), OpenMode::ReadWrite).unwrap();
        let mut bytes = vec![0; meta.file_bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        for at in 0..bytes.len() {
            let is_padding = at as u64 >= meta.view_offset - 2048 && bytes[at] == 0;
            for bit in if is_padding { at % 8..at % 8 + 1 } else { 0..8 } {
                file.write_at(&[bytes[at] ^ 1 << bit], at as u64).unwrap();
                match read_all(&ctx, &path(), &meta) {
                    Ok(read) => assert_eq!(read, model, "byte {at}"),
                    Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
                }
                let verified = Run::open(&ctx, &path(), &meta).and_then(|run| run.verify());
                assert!(verified.as_ref().is_err_and(|e| e.is_corruption()), "byte {at}: {verified:?}");
            }
            file.write_at(&bytes[at..=at], at as u64).unwrap();
        }
        for len in 0..bytes.len() {
            let cut = dir().join("000008.run");
            let file = ctx.vfs.open(&cut, OpenMode::CreateNew).unwrap();
            file.write_at(&bytes[..len], 0).unwrap();
            assert!(Run::open(&ctx, &cut, &meta).unwrap_err().is_corruption());
            assert!(Run::read_meta(&ctx, &cut, 8).unwrap_err().is_corruption());
            ctx.vfs.remove(&cut).unwrap();
        }
    }
}

#[test]
fn read_after_change_of_open_file_is_corruption() {
    let ctx = context(1 << 20);
    let (run, positions) = build(&ctx, &random_model(8, 500, false), &options(Compression::None, 512, true));
    let file = ctx.vfs.open(&path(), OpenMode::ReadWrite).unwrap();
    file.set_len(3000).unwrap();
    let last = *positions.last().unwrap();
    assert!(run.read(last, &pin()).unwrap_err().is_corruption());
    assert!(run.pin(last.block).unwrap_err().is_corruption());
    assert!(run.verify().unwrap_err().is_corruption());
    let mut scan = run.scan(Position::default());
    assert!(scan.next().unwrap_err().is_corruption());
    assert!(!scan.next().unwrap(), "a scan ends with its error");
    let mut keys = run.keys(last);
    assert!(keys.next().unwrap_err().is_corruption());
    assert!(!keys.next().unwrap());
}

#[test]
fn open_of_other_run_with_same_number_fails() {
    let ctx = context(1 << 20);
    let (meta, _) = write(&ctx, &random_model(1, 50, false), &RunOptions::default());
    for change in [
        |meta: &mut RunMeta| meta.file_id ^= 1,
        |meta: &mut RunMeta| meta.entries += 1,
        |meta: &mut RunMeta| meta.largest.push(0),
        |meta: &mut RunMeta| meta.max_sequence -= 1,
        |meta: &mut RunMeta| meta.file_bytes -= 1,
    ] {
        let mut other = meta.clone();
        change(&mut other);
        assert!(Run::open(&ctx, &path(), &other).unwrap_err().is_corruption());
    }
    let mut renumbered = meta.clone();
    renumbered.number = 99;
    Run::open(&ctx, &path(), &renumbered).unwrap();
}

#[test]
fn run_with_large_values_has_key_block() {
    let has_key_block = |wanted, value_lens: &[usize]| {
        let ctx = context(32 << 20);
        let options = RunOptions { key_blocks: wanted, ..RunOptions::default() };
        let mut writer = RunWriter::create(&ctx, &path(), 7, FILE_ID, &options).unwrap();
        for (row, &len) in value_lens.iter().enumerate() {
            let (key, value) = (format!("{row:020}").into_bytes(), vec![1; len]);
            writer.add(EntryRef { key: &key, sequence: 1, kind: EntryKind::Value, value: &value }).unwrap();
        }
        let meta = writer.finish(|_, _| Ok(Vec::new())).unwrap();
        let run = Run::open(&ctx, &path(), &meta).unwrap();
        run.verify().unwrap();
        let mut keys = run.keys(Position::default());
        for row in 0..value_lens.len() {
            assert!(keys.next().unwrap());
            assert_eq!(keys.key(), format!("{row:020}").as_bytes());
        }
        assert!(!keys.next().unwrap());
        meta.has_key_block
    };
    let (small, large) = (vec![120; 2000], vec![1500; 2000]);
    let first_small = [vec![1; 5], large.clone()].concat();
    let last_small = [vec![700; 100], vec![120; 2000]].concat();
    let default = KeyBlocks::default();
    assert!(has_key_block(default, &large) && !has_key_block(default, &small));
    assert!(has_key_block(default, &first_small), "a few rows at the beginning say little");
    assert!(!has_key_block(default, &last_small));
    assert!(!has_key_block(default, &[]) && !has_key_block(default, &[100]) && has_key_block(default, &[1000]));
    assert!(has_key_block(KeyBlocks::Always, &small) && !has_key_block(KeyBlocks::Never, &large));
}

/// Mutations of valid input with valid checksums. Decoders must not panic, hang or allocate without
/// bound.
#[test]
fn decode_of_any_bytes_does_not_panic() {
    let mut random = Random(11);
    let model = random_model(11, 40, false);
    let mut builder = block::BlockBuilder::default();
    let mut keys = key_block::KeyBlockBuilder::new(Compression::None, KeyBlocks::Always).unwrap();
    for entry in model.iter().map(entry_of) {
        builder.add(&entry);
        keys.add(&entry, 0);
    }
    keys.finish();
    let block = tail::BlockEntry { unit_len: 97, raw_len: 84, entries: 10, padding: 3 };
    let blocks = [block; 5];
    let unpadded = [tail::BlockEntry { unit_len: 100, padding: 0, ..block }; 5];
    let chunks = [
        tail::ChunkEntry { first_block: 0, offset: 564, unit_len: 50 },
        tail::ChunkEntry { first_block: 3, offset: 614, unit_len: 50 },
    ];
    let footer = tail::Footer {
        keys_offset: 564,
        tombstones_offset: 664,
        entries: 50,
        blocks: 5,
        has_key_block: true,
        ..tail::Footer::default()
    };
    let uses = [BlobUse { file: 1, bytes: 2, values: 3 }];
    let expiries = Expiries { entries: 2, times: vec![5, 70] };
    let encode = |is_padded, blocks: &[_]| tail::encode_index(is_padded, blocks, &chunks, b"a", b"b", &uses, &expiries);
    let (index, old_index) = (encode(true, &blocks), encode(false, &unpadded));
    for is_padded in [false, true] {
        assert_eq!(tail::Index::decode(&index, &footer, is_padded).is_some(), is_padded);
        assert_eq!(tail::Index::decode(&old_index, &footer, is_padded).is_some(), !is_padded);
    }
    // A whole page of zeros is never needed.
    for (padding, is_taken) in [(4095, true), (4096, false)] {
        let blocks = [tail::BlockEntry { padding, ..block }; 5];
        let by = 5 * u64::from(padding - block.padding);
        let moved = chunks.map(|chunk| tail::ChunkEntry { offset: chunk.offset + by, ..chunk });
        let index = tail::encode_index(true, &blocks, &moved, b"a", b"b", &uses, &Expiries::default());
        let (keys_offset, tombstones_offset) = (footer.keys_offset + by, footer.tombstones_offset + by);
        let footer = tail::Footer { keys_offset, tombstones_offset, ..footer.clone() };
        assert_eq!(tail::Index::decode(&index, &footer, true).is_some(), is_taken);
    }
    // A padded unit is uncompressed, or its end would be unknown; a compressed one is not longer.
    let compressed = [tail::BlockEntry { unit_len: 96, padding: 4, ..block }; 5];
    let longer = [tail::BlockEntry { unit_len: 100, padding: 0, ..block }; 5];
    for blocks in [compressed, longer] {
        assert!(tail::Index::decode(&encode(true, &blocks), &footer, true).is_none());
    }
    let mut footer_bytes = tail::Footer { file_bytes: 1000, ..footer.clone() }.encode(1);
    let mut meta = Vec::new();
    RunMeta::default().encode(&mut meta);
    let set = crate::base::RangeTombstoneSet::new(tombstones());
    let samples = [
        builder.finish().to_vec(),
        keys.chunks[0].1[13..].to_vec(),
        index,
        old_index,
        format::encode_tombstones(&set),
        meta,
    ];
    for round in 0..20_000 {
        let mut bytes = samples[round % samples.len()].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
                2 => bytes.insert(at, 0xff),
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        let is_valid = block::validate(&bytes, 40);
        for slot in 0..=255 {
            let entry = block::entry(&bytes, slot);
            assert!(!is_valid || entry.is_some() == (slot < 40));
        }
        let mut reader = key_block::ChunkReader::default();
        reader.contents.clone_from(&bytes);
        let mut read = reader.begin();
        while read.is_some() {
            read = reader.advance();
        }
        let _ = tail::Index::decode(&bytes, &footer, round.is_multiple_of(2));
        let _ = format::decode_tombstones(&bytes);
        let _ = RunMeta::decode(&mut ByteReader::new(&bytes));
        let mut unit = vec![0; 8];
        unit.push((round % 4) as u8);
        unit.extend_from_slice(&(random.next() as u32 >> random.below(32)).to_le_bytes());
        unit.extend_from_slice(&bytes);
        format::stamp_unit(&mut unit, 1, 2);
        let _ = format::read_unit(unit, 1, 2, Path::new("x"));
        let at = random.below(136);
        footer_bytes[at] = random.next() as u8;
        let sum = crate::codec::checksum(1, 1000 - 144, &footer_bytes[..136]);
        footer_bytes[136..].copy_from_slice(&sum.to_le_bytes());
        let _ = tail::Footer::decode(&footer_bytes, 1, 1000, Path::new("x"));
    }
}

fn rows_of(len: usize, count: u32, random: &mut Random) -> Model {
    let mut row = |at: u32| {
        let len = len - len / 20 + random.below(len / 10 + 1);
        let value = random.bytes(len);
        ((at.to_be_bytes().to_vec(), Reverse(7)), (EntryKind::Value, value))
    };
    (0..count).map(&mut row).collect()
}

fn offsets_of(run: &Run) -> Vec<u64> {
    (0..run.block_count() as usize).map(|block| run.index().offset(block)).collect()
}

#[test]
fn uncompressed_blocks_are_aligned_to_pages_where_cheap() {
    let mut random = Random(15);
    for (len, is_grid, padding) in [(40, true, 0.01), (130, true, 0.022), (1100, false, 0.01), (6000, false, 0.002)] {
        let model = rows_of(len, 2_000, &mut random);
        let ctx = context(8 << 20);
        let (run, positions) = build(&ctx, &model, &options(Compression::None, 4096, true));
        let starts = offsets_of(&run);
        let at_pages = starts.iter().skip(1).filter(|&&start| start % 4096 == 0).count();
        assert_eq!((run.index().is_grid(), at_pages + 1 == starts.len()), (is_grid, is_grid), "rows of {len}");
        let units: u64 = (0..run.end().block)
            .map(|block| {
                let unit = run.index().unit(usize::from(block), run.note(block).len());
                unit.end - unit.start
            })
            .sum();
        let blocks = run.index().offset(starts.len()) - starts[0];
        assert!((blocks - units) as f64 <= padding * blocks as f64, "{units} of {blocks} with rows of {len}");
        check_reads(&run, &model, &positions, &mut random);
        run.verify().unwrap();
        assert_eq!(run.index().resident_bytes() >= 4 * starts.len(), !is_grid);
    }
    // Compressed files have no padding, even for incompressible blocks.
    let mut model = rows_of(130, 2_000, &mut random);
    model.values_mut().step_by(100).for_each(|(_, value)| *value = vec![7; 3_000]);
    let ctx = context(8 << 20);
    let (run, positions) = build(&ctx, &model, &options(Compression::Lz4, 4096, true));
    let ends = (0..run.end().block).map(|block| run.index().unit(usize::from(block), run.note(block).len()).end);
    assert!(ends.zip(offsets_of(&run).into_iter().skip(1)).all(|(end, next)| end == next), "nothing between them");
    check_reads(&run, &model, &positions, &mut random);
}

#[test]
fn verify_with_nonzero_padding_is_corruption() {
    let model = rows_of(130, 500, &mut Random(16));
    let ctx = context(8 << 20);
    let (run, _) = build(&ctx, &model, &options(Compression::None, 4096, true));
    let end = run.index().unit(3, run.note(3).len()).end;
    let next = run.index().offset(4);
    assert!(end < next);
    for at in [end, next - 1] {
        let file = ctx.vfs.open(&path(), OpenMode::ReadWrite).unwrap();
        file.write_at(&[1], at).unwrap();
        assert!(run.verify().unwrap_err().is_corruption());
        file.write_at(&[0], at).unwrap();
        run.verify().unwrap();
    }
}

#[test]
fn open_of_run_without_padding_reads_all() {
    let ctx = context(1 << 20);
    let bytes = include_bytes!("testdata/unpadded.run");
    ctx.vfs.open(&path(), OpenMode::CreateNew).unwrap().write_at(bytes, 0).unwrap();
    let run = Run::open_unlisted(&ctx, &path(), 7).unwrap();
    let model = random_model(21, 40, false);
    let (_, positions) = write_elsewhere(&model);
    check_meta(run.meta(), &model);
    check_reads(&run, &model, &positions, &mut Random(1));
    assert_eq!(run.verify().unwrap(), bytes.len() as u64);
}

/// With small blocks, which are never padded.
fn write_elsewhere(model: &Model) -> (RunMeta, Vec<Position>) {
    write(&context(1 << 20), model, &options(Compression::None, 300, true))
}
