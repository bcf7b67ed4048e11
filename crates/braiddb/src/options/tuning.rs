//! Sizes and thresholds inside the engine ([`Tuning`]).

use crate::{db::Settings, table::KeyBlocks};

/// Sizes and thresholds inside the engine, for [`Builder::tuning`](crate::Builder::tuning).
///
/// **Not stable**: a minor release may rename, remove or reinterpret any of them. The defaults suit
/// most programs; [`Builder::memory`](crate::Builder::memory) sizes everything else. A value out of
/// range makes the open fail with `InvalidArgument`.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::{Db, options::Tuning};
///
/// let tuning = Tuning::new().memtable_bytes(4 << 20).block_bytes(8192);
/// let db = Db::builder().tuning(tuning).open_in_memory()?;
/// # db.close()
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    memtable_bytes: Option<usize>,
    partition_bytes: Option<u64>,
    unindexed_runs: Option<usize>,
    fold_bytes_per_entry: Option<u64>,
    log_segment_bytes: Option<u64>,
    block_bytes: Option<usize>,
    blob_file_bytes: Option<u64>,
    key_blocks: Option<bool>,
    hash_index_after: Option<u64>,
}

impl Tuning {
    /// Changes nothing yet.
    pub fn new() -> Tuning {
        Tuning::default()
    }

    /// Size at which a memtable is frozen, in bytes.
    ///
    /// Default: an eighth of the memory. Range: 1 KiB to 1 TiB.
    pub fn memtable_bytes(mut self, bytes: usize) -> Tuning {
        self.memtable_bytes = Some(bytes);
        self
    }

    /// Size at which a partition is split, in bytes; at least 4 KiB.
    ///
    /// Default: 16 memtables, within 128 to 256 MiB.
    pub fn partition_bytes(mut self, bytes: u64) -> Tuning {
        self.partition_bytes = Some(bytes);
        self
    }

    /// Number of unindexed runs (not in the sorted view yet) at which a partition merges them or
    /// folds them into its view.
    ///
    /// Default: 8. Range: 2 to 1024. A smaller number makes reads faster under write load and
    /// raises write amplification. The number triples if the runs overlap neither each other nor
    /// the view, as with ascending keys.
    pub fn unindexed_runs(mut self, runs: usize) -> Tuning {
        self.unindexed_runs = Some(runs);
        self
    }

    /// Bytes of unindexed runs, per entry of the new view, from which on they are folded into the
    /// view; until then they are merged among themselves.
    ///
    /// Default: 10, twice the size of a view entry. A larger value lowers write amplification and
    /// makes reads slower under write load.
    pub fn fold_bytes_per_entry(mut self, bytes: u64) -> Tuning {
        self.fold_bytes_per_entry = Some(bytes);
        self
    }

    /// Maximum size of a log segment, in bytes.
    ///
    /// Default: 16 MiB. Range: 1 KiB to 1 TiB. A segment is at most half a memtable, and the first
    /// ones are smaller; a large commit gets a longer one.
    pub fn log_segment_bytes(mut self, bytes: u64) -> Tuning {
        self.log_segment_bytes = Some(bytes);
        self
    }

    /// Size of a block before compression, in bytes.
    ///
    /// Default: 4096. Range: 64 to 65,536. A larger entry has a block of its own.
    pub fn block_bytes(mut self, bytes: usize) -> Tuning {
        self.block_bytes = Some(bytes);
        self
    }

    /// Size at which a blob file is closed and the next one begun, in bytes.
    ///
    /// Default: 256 MiB. At least 1.
    pub fn blob_file_bytes(mut self, bytes: u64) -> Tuning {
        self.blob_file_bytes = Some(bytes);
        self
    }

    /// Gives all runs a key block, or none: a second copy of all keys, which spares reading values
    /// when a view is built.
    ///
    /// Default: only runs with values that are large beside their keys. With small values key
    /// blocks take an eighth of the space; that can pay if the database exceeds memory.
    pub fn key_blocks(mut self, key_blocks: bool) -> Tuning {
        self.key_blocks = Some(key_blocks);
        self
    }

    /// Number of searches by gets after which a sorted view gets an in-memory hash index.
    ///
    /// Default: 2048, and at least one search per 32 entries. `u64::MAX` disables hash indexes.
    ///
    /// Gets that wait for memory, also of absent keys and in `multi_get`, then take a third to a
    /// half less time. An index takes six bytes a key; all take at most a quarter of the memory.
    ///
    /// - An index is built only if nine tenths of the view's data are cached. If not, the number of
    ///   searches doubles before the next attempt, up to 32 times.
    /// - A view that replaces one with a used index, or adjoins one, is indexed at once.
    /// - While there are no commits, views of 2048 entries or more that are read in place are
    ///   indexed too, as long as all indexes take at most an eighth of the memory: once per part of
    ///   the database, and again when it has doubled. Databases that share threads do not do this.
    pub fn hash_index_after(mut self, searches: u64) -> Tuning {
        self.hash_index_after = Some(searches);
        self
    }

    pub(super) fn apply(self, settings: &mut Settings) {
        let key_blocks = |always| if always { KeyBlocks::Always } else { KeyBlocks::Never };
        set(&mut settings.key_blocks, self.key_blocks.map(key_blocks));
        settings.memtable_bytes = self.memtable_bytes.or(settings.memtable_bytes);
        settings.partition_bytes = self.partition_bytes.or(settings.partition_bytes);
        set(&mut settings.loose_runs, self.unindexed_runs);
        set(&mut settings.fold_bytes_per_entry, self.fold_bytes_per_entry);
        set(&mut settings.log_segment_bytes, self.log_segment_bytes);
        set(&mut settings.block_bytes, self.block_bytes);
        set(&mut settings.blob_file_bytes, self.blob_file_bytes);
        set(&mut settings.hash_index_after, self.hash_index_after);
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}
