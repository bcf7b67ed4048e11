//! Sorted run files and blob files.

pub mod blob;

use crate::{
    base::{EntryKind, EntryRef, FileId, FileNumber, RangeTombstone, RangeTombstoneSet, Result, SequenceNumber},
    cache::BlockCache,
    codec::{ByteReader, Compression},
    platform::{File, Vfs},
};
use crossbeam_epoch::Guard;
use std::{path::Path, sync::Arc};

/// What tables need of the world.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Files.
    pub vfs: Arc<dyn Vfs>,
    /// The block cache.
    pub cache: Arc<BlockCache>,
}

/// Where an entry stands in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The block.
    pub block: u16,
    /// The entry in the block.
    pub slot: u16,
}

/// How a run is written.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How blocks are compressed.
    pub compression: Compression,
    /// The most bytes of a block, unless one entry is larger.
    pub block_bytes: usize,
    /// Whether all keys are written a second time, without values.
    pub key_block: bool,
}

/// How much of a blob file a run refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobUse {
    /// The blob file.
    pub file: FileNumber,
    /// Bytes referred to.
    pub bytes: u64,
    /// Values referred to.
    pub values: u64,
}

/// What the manifest knows of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunMeta {
    /// The number in the file's name.
    pub number: FileNumber,
    /// The file's identity.
    pub file_id: FileId,
    /// The file's length.
    pub file_bytes: u64,
    /// The lengths of all keys and values.
    pub raw_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// Data blocks.
    pub blocks: u32,
    /// The smallest key, range tombstones included.
    pub smallest: Vec<u8>,
    /// The largest key (inclusive), ends of range tombstones included.
    pub largest: Vec<u8>,
    /// The smallest sequence number, of entries and range tombstones.
    pub min_sequence: SequenceNumber,
    /// The largest sequence number, of entries and range tombstones.
    pub max_sequence: SequenceNumber,
    /// Range tombstones.
    pub range_tombstones: u32,
    /// References to blob files, by file number.
    pub blob_uses: Vec<BlobUse>,
    /// Whether the keys stand apart too.
    pub has_key_block: bool,
    /// Where the embedded view begins; 0 if there is none.
    pub view_offset: u64,
    /// The length of the embedded view; 0 if there is none.
    pub view_bytes: u64,
}

impl RunMeta {
    /// Appends.
    pub fn encode(&self, _out: &mut Vec<u8>) {
        todo!()
    }
    /// Reads.
    pub fn decode(_reader: &mut ByteReader<'_>) -> Option<RunMeta> {
        todo!()
    }
}

/// Writes a run.
#[derive(Debug)]
pub struct RunWriter {}

impl RunWriter {
    /// Creates the file.
    pub fn create(
        _ctx: &TableContext,
        _path: &Path,
        _number: FileNumber,
        _file_id: FileId,
        _options: &RunOptions,
    ) -> Result<RunWriter> {
        todo!()
    }
    /// Adds an entry.
    pub fn add(&mut self, _entry: EntryRef<'_>) -> Result<Position> {
        todo!()
    }
    /// Counts a reference to a blob file.
    pub fn set_compression(&mut self, _compression: Compression) {
        todo!()
    }

    pub fn add_blob_use(&mut self, _file: FileNumber, _bytes: u64) {
        todo!()
    }
    /// Adds a range tombstone.
    pub fn add_range_tombstone(&mut self, _tombstone: RangeTombstone) {
        todo!()
    }
    /// Data blocks so far, the unfinished one included.
    pub fn block_count(&self) -> u32 {
        todo!()
    }
    /// About how long the file would be if it were finished now.
    pub fn estimated_bytes(&self) -> u64 {
        todo!()
    }
    /// Entries so far.
    pub fn entries(&self) -> u64 {
        todo!()
    }
    /// Completes and syncs the file.
    pub fn finish(self, _embed: impl FnOnce(FileId, u64) -> Result<Vec<u8>>) -> Result<RunMeta> {
        todo!()
    }
}

/// An open run.
#[derive(Debug)]
pub struct Run {}

impl Run {
    /// Opens.
    pub fn open(_ctx: &TableContext, _path: &Path, _meta: &RunMeta) -> Result<Arc<Run>> {
        todo!()
    }
    /// What the manifest knows.
    pub fn meta(&self) -> &RunMeta {
        todo!()
    }
    /// The file's path.
    pub fn path(&self) -> &Path {
        todo!()
    }
    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        todo!()
    }
    /// Data blocks.
    pub fn block_count(&self) -> u32 {
        todo!()
    }
    /// Entries of a block; 0 past the end.
    pub fn block_entries(&self, _block: u16) -> u16 {
        todo!()
    }
    /// `n` entries on.
    pub fn advance(&self, _position: Position, _n: u32) -> Position {
        todo!()
    }
    /// One entry back.
    pub fn retreat(&self, _position: Position) -> Option<Position> {
        todo!()
    }
    /// Past the last entry.
    pub fn end(&self) -> Position {
        todo!()
    }
    /// Reads an entry.
    pub fn read<'g>(&self, _position: Position, _guard: &'g Guard) -> Result<EntryRef<'g>> {
        todo!()
    }
    /// Prefetches an entry that is likely to be read next; does nothing if its block is not cached.
    pub fn prefetch(&self, _position: Position) {
        todo!()
    }
    /// Pins a block.
    pub fn pin(&self, _block: u16) -> Result<PinnedBlock> {
        todo!()
    }
    /// Range tombstones.
    pub fn range_tombstones(&self) -> &Arc<RangeTombstoneSet> {
        todo!()
    }
    /// All entries from a position.
    pub fn scan(self: &Arc<Self>, _from: Position) -> RunScan {
        todo!()
    }
    /// All keys from a position.
    pub fn keys(self: &Arc<Self>, _from: Position) -> KeyScan {
        todo!()
    }
    /// Checks everything.
    pub fn verify(&self) -> Result<u64> {
        todo!()
    }
    /// Memory held apart from the cache.
    pub fn resident_bytes(&self) -> usize {
        todo!()
    }
    /// The file is removed when the last handle goes.
    pub fn mark_obsolete(&self) {
        todo!()
    }
}

/// A block that stays in memory.
#[derive(Debug)]
pub struct PinnedBlock {}

impl PinnedBlock {
    /// An entry.
    pub fn entry(&self, _slot: u16) -> Result<EntryRef<'_>> {
        todo!()
    }
    /// How many entries.
    pub fn entries(&self) -> u16 {
        todo!()
    }
}

/// All entries in order.
#[derive(Debug)]
pub struct RunScan {}

impl RunScan {
    /// Moves on; false at the end.
    #[expect(clippy::should_implement_trait, reason = "a lending cursor")]
    pub fn next(&mut self) -> Result<bool> {
        todo!()
    }
    /// The entry.
    pub fn entry(&self) -> EntryRef<'_> {
        todo!()
    }
    /// Where it stands.
    pub fn position(&self) -> Position {
        todo!()
    }
}

/// All keys in order.
#[derive(Debug)]
pub struct KeyScan {}

impl KeyScan {
    /// Moves on; false at the end.
    #[expect(clippy::should_implement_trait, reason = "a lending cursor")]
    pub fn next(&mut self) -> Result<bool> {
        todo!()
    }
    /// The entry, its value empty.
    pub fn entry(&self) -> EntryRef<'_> {
        todo!()
    }
    /// The key.
    pub fn key(&self) -> &[u8] {
        todo!()
    }
    /// The sequence number.
    pub fn sequence(&self) -> SequenceNumber {
        todo!()
    }
    /// The kind.
    pub fn kind(&self) -> EntryKind {
        todo!()
    }
    /// Where it stands.
    pub fn position(&self) -> Position {
        todo!()
    }
}
