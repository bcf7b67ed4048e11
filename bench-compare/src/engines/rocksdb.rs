//! RocksDB by its wiki: "Setup Options and Basic Tuning", "Memory usage in RocksDB", "WAL
//! Performance", "Prefix Seek", "Creating and Ingesting SST files"; in memory "PlainTable Format"
//! and "Hash based memtable implementations". Compression is off, as in all engines.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit};
use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, Cache, CompactionPri, DB, DBCompressionType, DBRawIterator, DataBlockIndexType, FlushOptions,
    KeyEncodingType, MemtableFactory, Options, PlainTableFactoryOptions, ReadOptions, SliceTransform, SstFileWriter,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::path::PathBuf;

const FAMILY: &str = "default";

pub struct Rocks {
    db: DB,
    options: Options,
    write_options: WriteOptions,
    folder: PathBuf,
    prefix_len: Option<usize>,
    replayed: u64,
}

impl Rocks {
    pub fn open(setup: Setup<'_>) -> Result<Rocks> {
        let folder = setup.folder.join("db");
        let options = options(&setup);
        // Bytes of the earlier process's log.
        let log_bytes =
            if folder.exists() { crate::meter::files_len(&folder, |path| path.ends_with(".log")) } else { 0 };
        // By name, because batched gets need a handle.
        let db = DB::open_cf_with_opts(&options, &folder, [(FAMILY, options.clone())])?;
        let mut write_options = WriteOptions::default();
        write_options.set_sync(setup.durable);
        // Record: 7 bytes of framing, 12 of batch header, 3 of tags and lengths, key and value.
        let replayed = log_bytes / (7 + 12 + 3 + 16 + 124);
        Ok(Rocks { db, options, write_options, folder, prefix_len: setup.prefix_len, replayed })
    }
}

fn options(setup: &Setup<'_>) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    let cpus = std::thread::available_parallelism().map_or(2, |cpus| cpus.get() as i32);
    options.increase_parallelism(cpus.max(2));
    // Basic Tuning, "other general options".
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_bytes_per_sync(1 << 20);
    options.set_compaction_pri(CompactionPri::MinOverlappingRatio);

    // One budget: memtables are charged to the block cache ("Write Buffer Manager: cost memory to block cache").
    let cache = Cache::new_lru_cache(setup.budget);
    let memtables = match setup.access {
        Access::Write => setup.budget / 2,
        Access::Read | Access::Half | Access::Cold => setup.budget / 8,
    };
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        memtables,
        false,
        cache.clone(),
    ));
    let write_buffer = (memtables / 2).clamp(1 << 20, 64 << 20);
    options.set_write_buffer_size(write_buffer);
    options.set_max_write_buffer_number(4);

    if let Some(len) = setup.prefix_len.filter(|_| setup.in_memory) {
        set_plain_table(&mut options, len, write_buffer);
        return options;
    }
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if setup.access == Access::Write {
        // Basic Tuning. For point reads the default of 4 KiB is better.
        table.set_block_size(16 << 10);
    } else {
        // "Data Block Hash Index": for point lookups bound by the processor.
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(0.75);
    }
    options.set_block_based_table_factory(&table);

    if let Some(len) = setup.prefix_len {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix(len));
        options.set_memtable_prefix_bloom_ratio(0.1);
    }
    if setup.durable {
        // WAL Performance: a recycled file keeps its size, so a sync writes no metadata.
        options.set_recycle_log_file_num(4);
    }
    options
}

/// Files are mapped and found by a hash of the prefix, without cache or copy. Memtables have a list
/// per prefix and one writing thread; the buckets (8 bytes each) must be small beside the memtable.
fn set_plain_table(options: &mut Options, prefix_len: usize, write_buffer: usize) {
    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix_len));
    options.set_allow_mmap_reads(true);
    options.set_bloom_locality(1);
    options.set_plain_table_factory(&PlainTableFactoryOptions {
        user_key_length: 0,
        bloom_bits_per_key: 10,
        hash_table_ratio: 0.75,
        index_sparseness: 16,
        huge_page_tlb_size: 0,
        encoding_type: KeyEncodingType::Plain,
        full_scan_mode: false,
        store_index_in_file: false,
    });
    options.set_allow_concurrent_memtable_write(false);
    options.set_memtable_factory(MemtableFactory::HashSkipList {
        bucket_count: write_buffer / 256,
        height: 4,
        branching_factor: 4,
    });
}

impl Engine for Rocks {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        if let [Op { key, value: Some(value) }] = ops {
            return Ok(self.db.put_opt(key, value, &self.write_options)?);
        }
        let mut batch = WriteBatch::default();
        for op in ops {
            match op.value {
                Some(value) => batch.put(op.key, value),
                None => batch.delete(op.key),
            }
        }
        Ok(self.db.write_opt(batch, &self.write_options)?)
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        let path = self.folder.with_extension("sst");
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(&path)?;
        while let Some((key, value)) = rows.next() {
            writer.put(key, value)?;
        }
        writer.finish()?;
        let mut ingest = rocksdb::IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        Ok(self.db.ingest_external_file_opts(&ingest, vec![path])?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RocksReader {
            rocks: self,
            gets: ReadOptions::default(),
            rows: Kept::default(),
            prefix_rows: Kept::default(),
        }))
    }

    fn flush(&self) -> Result<()> {
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.db.flush_opt(&flush)?;
        Ok(self.db.wait_for_compact(&WaitForCompactOptions::default())?)
    }

    fn replayed(&self) -> Option<u64> {
        Some(self.replayed)
    }
}

/// Gets read the latest state. Iterators are refreshed before their next use ("Iterator":
/// recreating one costs more).
struct RocksReader<'a> {
    rocks: &'a Rocks,
    gets: ReadOptions,
    rows: Kept<'a>,
    prefix_rows: Kept<'a>,
}

#[derive(Default)]
struct Kept<'a> {
    iterator: Option<DBRawIterator<'a>>,
    is_stale: bool,
}

impl<'a> Kept<'a> {
    fn fresh(&mut self, db: &'a DB, options: impl FnOnce() -> ReadOptions) -> Result<&mut DBRawIterator<'a>> {
        let is_stale = std::mem::replace(&mut self.is_stale, false);
        let is_kept = self.iterator.is_some();
        let iterator = self.iterator.get_or_insert_with(|| db.raw_iterator_opt(options()));
        if is_stale && is_kept {
            iterator.refresh()?;
        }
        Ok(iterator)
    }
}

/// Needed with a prefix extractor.
fn all_rows() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options
}

impl Reader for RocksReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        self.rows.is_stale = true;
        self.prefix_rows.is_stale = true;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.rocks.db.get_pinned_opt(key, &self.gets)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        let Some(family) = self.rocks.db.cf_handle(FAMILY) else { anyhow::bail!("no default column family") };
        let values = self.rocks.db.batched_multi_get_cf_opt(&family, keys.iter(), false, &self.gets);
        for (index, value) in values.into_iter().enumerate() {
            if let Some(value) = value? {
                found(index, &value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        let rows = self.rows.fresh(&self.rocks.db, all_rows)?;
        // A plain table with a hash index can seek only to its first row.
        if from.is_empty() {
            rows.seek_to_first()
        } else {
            rows.seek(from)
        }
        show(rows, DBRawIterator::next, visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        let rows = self.rows.fresh(&self.rocks.db, all_rows)?;
        rows.seek_to_last();
        show(rows, DBRawIterator::prev, visit)
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        let same_prefix = self.rocks.prefix_len.is_some();
        let rows = self.prefix_rows.fresh(&self.rocks.db, || {
            let mut options = ReadOptions::default();
            options.set_prefix_same_as_start(same_prefix);
            options
        })?;
        rows.seek(prefix);
        show(rows, DBRawIterator::next, &mut |key, value| key.starts_with(prefix) && visit(key, value))
    }
}

fn show<'a>(rows: &mut DBRawIterator<'a>, step: fn(&mut DBRawIterator<'a>), visit: Visit<'_>) -> Result<()> {
    while let Some((key, value)) = rows.item() {
        if !visit(key, value) {
            return Ok(());
        }
        step(rows);
    }
    Ok(rows.status()?)
}
