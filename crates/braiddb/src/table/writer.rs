//! Writes a run from front to back.
//!
//! Blocks are gathered into large writes. Later parts stay in memory until [`RunWriter::finish`]:
//! the keys compressed, a few bytes each; the index with 16 bytes a block.

use super::{
    Expiries, ExpiryCounter, KeyFilter, Moment, NewFilters, Position, RecentWrites, TableContext,
    block::{BlockBuilder, MAX_BLOCK_BYTES, MAX_ENTRY_BYTES},
    format::{PAGE_BYTES, UNIT_HEADER_LEN, encode_tombstones, put_unit, stamp_unit},
    key_block::{KeyBlockBuilder, KeyBlocks},
    meta::{BlobUse, RunMeta},
    tail::{BlockEntry, ChunkEntry, FOOTER_LEN, Footer, encode_index},
};
use crate::{
    base::{
        Content, EntryKind, EntryRef, Error, FileId, FileNumber, MAX_SEQUENCE, RangeTombstone, RangeTombstoneSet,
        Result, SequenceNumber,
        limits::{MAX_INTERNAL_KEY_LEN, MAX_RUN_BLOCKS},
    },
    codec::{Compression, FileHeader, FileKind, GIVEN_SEQUENCE, PADDED_BLOCKS, checksum, hash64},
    platform::{File, OpenMode},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes after which write-back starts. Smaller pieces cost more; larger ones leave more to wait
/// for at the end.
const WRITE_BACK_BYTES: u64 = 2 << 20;

/// Maximum zeros that align the next block to a page, ...
const PADDING_MAX: u64 = 256;
/// ... while all zeros take at most this fraction of the file, ...
const PADDING_PART: u64 = 32;
/// ... counted as if it were this many bytes longer.
const PADDING_CREDIT: u64 = 64 << 10;

/// Maximum keys of a run with a filter: the hashes use unaccounted memory.
const FILTER_KEYS_MAX: usize = 4 << 20;

pub const MIN_BLOCK_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    pub compression: Compression,
    /// Maximum uncompressed bytes, unless one entry is larger: 64 to 65,536.
    pub block_bytes: usize,
    pub key_blocks: KeyBlocks,
    /// Writes end at multiples of it. A power of two.
    pub write_bytes: usize,
    /// The manifest will give all entries one sequence number; add them with 0.
    pub is_unnumbered: bool,
    pub is_unbuffered: bool,
    /// Builds a filter, for unindexed runs, which gets will probe.
    pub has_filter: bool,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            compression: Compression::default(),
            block_bytes: 4096,
            key_blocks: KeyBlocks::default(),
            write_bytes: 512 << 10,
            is_unnumbered: false,
            is_unbuffered: false,
            has_filter: false,
        }
    }
}

/// Unless [`RunWriter::finish`] was called, the caller must remove the file.
#[derive(Debug)]
pub struct RunWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    options: RunOptions,
    footer: Footer,
    number: FileNumber,
    file_id: FileId,
    recent_writes: Arc<RecentWrites>,
    new_filters: Arc<NewFilters>,
    hashes: Vec<u64>,
    begun: Moment,
    buffer: Vec<u8>,
    written: u64,
    write_bytes: usize,
    /// Offset from which on write-back has not been started.
    write_back_from: u64,
    block: BlockBuilder,
    room: usize,
    blocks: Vec<BlockEntry>,
    padding: u64,
    keys: Option<KeyBlockBuilder>,
    smallest: Vec<u8>,
    last: Option<(Vec<u8>, SequenceNumber)>,
    range_tombstones: Vec<RangeTombstone>,
    blob_uses: BTreeMap<FileNumber, BlobUse>,
    expiries: ExpiryCounter,
}

impl RunWriter {
    pub fn create(
        ctx: &TableContext,
        path: &Path,
        number: FileNumber,
        file_id: FileId,
        options: &RunOptions,
    ) -> Result<RunWriter> {
        if !(MIN_BLOCK_BYTES..=MAX_BLOCK_BYTES).contains(&options.block_bytes) {
            return Err(Error::InvalidArgument(format!(
                "blocks of {} bytes: choose {MIN_BLOCK_BYTES} to {MAX_BLOCK_BYTES}",
                options.block_bytes
            )));
        }
        let features = PADDED_BLOCKS | if options.is_unnumbered { GIVEN_SEQUENCE } else { 0 };
        let file = match options.is_unbuffered {
            true => ctx.vfs.open_unbuffered(path, OpenMode::CreateNew).map(|opened| opened.file),
            false => ctx.vfs.open(path, OpenMode::CreateNew),
        };
        let file = file.map_err(|e| Error::io("create", path, e))?;
        Ok(RunWriter {
            file,
            path: path.to_owned(),
            options: *options,
            footer: Footer {
                min_sequence: SequenceNumber::MAX,
                block_bytes: options.block_bytes as u32,
                ..Footer::default()
            },
            number,
            file_id,
            recent_writes: Arc::clone(&ctx.recent_writes),
            new_filters: Arc::clone(&ctx.new_filters),
            hashes: Vec::new(),
            begun: Moment::now(&*ctx.runtime),
            buffer: FileHeader::new(FileKind::Run, file_id, [0, 0]).requiring(features).encode().to_vec(),
            written: 0,
            write_bytes: options.write_bytes,
            write_back_from: 0,
            block: BlockBuilder::default(),
            room: 0,
            blocks: Vec::new(),
            padding: 0,
            keys: KeyBlockBuilder::new(options.compression, options.key_blocks),
            smallest: Vec::new(),
            last: None,
            range_tombstones: Vec::new(),
            blob_uses: BTreeMap::new(),
            expiries: ExpiryCounter::default(),
        })
    }

    /// Returns the entry's position. Panics unless entries come in key order, versions of a key
    /// newest first. A too large entry is refused and changes nothing; after a failed write the
    /// writer is unusable.
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<Position> {
        if entry.key.len() > MAX_INTERNAL_KEY_LEN || entry.value.len() > MAX_ENTRY_BYTES - MAX_INTERNAL_KEY_LEN {
            let (key, value) = (entry.key.len(), entry.value.len());
            return Err(Error::InvalidArgument(format!("an entry of {key} + {value} bytes is too large for a run")));
        }
        assert!(entry.sequence <= MAX_SEQUENCE && entry.kind != EntryKind::RangeDelete, "not an entry of a run");
        assert!(!self.options.is_unnumbered || entry.sequence == 0, "the manifest gives the number");
        if !self.block.has_room_for(&entry, self.room) {
            if self.blocks.len() + 1 >= MAX_RUN_BLOCKS {
                return Err(Error::InvalidArgument(format!(
                    "a run has at most {MAX_RUN_BLOCKS} blocks: begin another"
                )));
            }
            self.end_block()?;
            self.pad();
        }
        if self.block.entries() == 0 {
            self.room = self.room_here();
        }
        self.remember(&entry);
        if self.options.has_filter {
            self.note_hash(hash64(entry.key));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_RUN_BLOCKS and MAX_BLOCK_ENTRIES")]
        let position = Position { block: self.blocks.len() as u16, slot: self.block.entries() as u16 };
        self.block.add(&entry);
        if let Some(keys) = &mut self.keys {
            keys.add(&entry, position.block);
        }
        Ok(position)
    }

    fn note_hash(&mut self, hash: u64) {
        self.hashes.push(hash);
        if self.hashes.len() > FILTER_KEYS_MAX {
            self.options.has_filter = false;
            self.hashes = Vec::new();
        }
    }

    pub fn set_compression(&mut self, compression: Compression) {
        self.options.compression = compression;
    }

    pub fn add_blob_use(&mut self, file: FileNumber, bytes: u64) {
        let blob_use = self.blob_uses.entry(file).or_insert(BlobUse { file, bytes: 0, values: 0 });
        blob_use.bytes += bytes;
        blob_use.values += 1;
    }

    pub fn add_range_tombstone(&mut self, tombstone: RangeTombstone) {
        assert!(!self.options.is_unnumbered, "a range tombstone tells its number");
        self.range_tombstones.push(tombstone);
    }

    pub fn block_count(&self) -> u32 {
        self.blocks.len() as u32 + u32::from(self.block.entries() > 0)
    }

    /// Length of the file if it were finished now, without a view.
    pub fn estimated_bytes(&self) -> u64 {
        let keys = self.keys.as_ref().map_or(0, KeyBlockBuilder::len);
        let tail = keys + self.block.len() + 6 * self.blocks.len() + FOOTER_LEN;
        self.position() + tail as u64
    }

    #[cfg(test)]
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// Syncs the file, not its directory. `embed` gets the file's id and the view's offset, a
    /// multiple of 4096, and returns the view, or no bytes.
    pub fn finish(self, embed: impl FnOnce(FileId, u64) -> Result<Vec<u8>>) -> Result<RunMeta> {
        let (path, file) = (self.path.clone(), Arc::clone(&self.file));
        let meta = self.finish_unsynced(embed)?;
        file.sync_data().map_err(|e| Error::io("sync", &path, e))?;
        Ok(meta)
    }

    pub fn finish_unsynced(mut self, embed: impl FnOnce(FileId, u64) -> Result<Vec<u8>>) -> Result<RunMeta> {
        if self.block.entries() > 0 {
            self.end_block()?;
        }
        self.footer.keys_offset = self.position();
        let chunks = self.put_keys()?;
        self.footer.tombstones_offset = self.position();
        let tombstones = RangeTombstoneSet::new(std::mem::take(&mut self.range_tombstones));
        let (smallest, largest) = self.put_tombstones(&tombstones)?;
        self.footer.index_offset = self.position();
        let blob_uses: Vec<BlobUse> = std::mem::take(&mut self.blob_uses).into_values().collect();
        let expiries = std::mem::take(&mut self.expiries).finish();
        let index = encode_index(true, &self.blocks, &chunks, &smallest, &largest, &blob_uses, &expiries);
        self.put(Compression::None, &index)?;
        self.footer.index_end = self.position();
        self.put_view(embed)?;
        let meta = self.put_footer(smallest, largest, blob_uses, expiries);
        self.flush()?;
        debug_assert_eq!(meta.file_bytes, self.written);
        if self.blocks.iter().all(BlockEntry::is_plain) {
            self.recent_writes.note(self.file_id, 0, self.begun);
        }
        if self.options.has_filter {
            self.new_filters.put(self.number, self.file_id, KeyFilter::of(&self.hashes));
        }
        Ok(meta)
    }

    fn remember(&mut self, entry: &EntryRef<'_>) {
        match &mut self.last {
            None => {
                self.smallest = entry.key.to_vec();
                self.last = Some((entry.key.to_vec(), entry.sequence));
            }
            Some((key, sequence)) => {
                let order = key.as_slice().cmp(entry.key).then_with(|| entry.sequence.cmp(sequence));
                assert!(order.is_lt(), "entries of a run must come in order");
                key.clear();
                key.extend_from_slice(entry.key);
                *sequence = entry.sequence;
            }
        }
        if entry.kind == EntryKind::Expiring
            && let Some(Content { expires_us: Some(expires_us), .. }) = Content::of(entry.kind, entry.value)
        {
            self.expiries.add(expires_us);
        }
        let footer = &mut self.footer;
        footer.entries += 1;
        footer.tombstones += u64::from(entry.kind == EntryKind::Tombstone);
        footer.raw_bytes += (entry.key.len() + entry.value.len()) as u64;
        footer.min_sequence = footer.min_sequence.min(entry.sequence);
        footer.max_sequence = footer.max_sequence.max(entry.sequence);
    }

    fn end_block(&mut self) -> Result<()> {
        let entries = u8::try_from(self.block.entries()).expect("the builder's bound");
        let raw = self.block.finish();
        let raw_len = u32::try_from(raw.len()).expect("checked by add");
        let unit_len = put_stamped(&mut self.buffer, self.written, self.file_id, self.options.compression, raw);
        self.blocks.push(BlockEntry { unit_len, raw_len, entries, padding: 0 });
        self.block.clear();
        match &mut self.keys {
            Some(keys) if keys.is_typical() && !keys.pays() => self.keys = None,
            Some(keys) => keys.end_block(),
            None => {}
        }
        self.flush_if_full()
    }

    fn is_paged(&self) -> bool {
        self.options.compression == Compression::None && self.options.block_bytes as u64 >= PAGE_BYTES
    }

    /// Maximum length of the block that begins here. It ends with a page if that is nearly as long
    /// as configured.
    fn room_here(&self) -> usize {
        let wanted = self.options.block_bytes;
        let from = self.position() + UNIT_HEADER_LEN as u64;
        let page_end = (from + wanted as u64) / PAGE_BYTES * PAGE_BYTES;
        let room = usize::try_from(page_end.saturating_sub(from)).unwrap_or(0);
        if self.is_paged() && room >= wanted - wanted / 8 { room } else { wanted }
    }

    /// Aligns the next block to a page if that takes few zeros: it is then located without a
    /// lookup.
    fn pad(&mut self) {
        let position = self.position();
        let gap = position.next_multiple_of(PAGE_BYTES) - position;
        let is_little = gap <= PADDING_MAX && (self.padding + gap) * PADDING_PART <= position + PADDING_CREDIT;
        if !self.is_paged() || !is_little {
            return;
        }
        // The end of a padded block must follow from its length.
        if let Some(before) = self.blocks.last_mut()
            && before.is_plain()
            && before.raw_len <= MAX_BLOCK_BYTES as u32
        {
            before.padding = gap as u16;
            self.padding += gap;
            self.buffer.resize(self.buffer.len() + gap as usize, 0);
        }
    }

    fn put_keys(&mut self) -> Result<Vec<ChunkEntry>> {
        let Some(mut keys) = self.keys.take().filter(KeyBlockBuilder::pays) else { return Ok(Vec::new()) };
        self.footer.has_key_block = true;
        keys.finish();
        let mut chunks = Vec::with_capacity(keys.chunks.len());
        for (first_block, mut unit) in keys.chunks {
            let offset = self.position();
            stamp_unit(&mut unit, self.file_id, offset);
            chunks.push(ChunkEntry { first_block, offset, unit_len: unit.len() as u64 });
            self.buffer.extend_from_slice(&unit);
            self.flush_if_full()?;
        }
        Ok(chunks)
    }

    fn put_tombstones(&mut self, tombstones: &RangeTombstoneSet) -> Result<(Vec<u8>, Vec<u8>)> {
        let mut smallest = std::mem::take(&mut self.smallest);
        let mut largest = self.last.take().map(|(key, _)| key);
        let mut is_smallest_known = largest.is_some();
        for tombstone in tombstones.iter() {
            if !is_smallest_known || tombstone.start < smallest {
                smallest.clone_from(&tombstone.start);
                is_smallest_known = true;
            }
            if largest.as_ref().is_none_or(|largest| *largest < tombstone.end) {
                largest = Some(tombstone.end.clone());
            }
            self.footer.min_sequence = self.footer.min_sequence.min(tombstone.sequence);
            self.footer.max_sequence = self.footer.max_sequence.max(tombstone.sequence);
        }
        if self.footer.entries == 0 && tombstones.is_empty() {
            self.footer.min_sequence = 0;
        }
        self.footer.range_tombstones = u32::try_from(tombstones.len())
            .map_err(|_| Error::InvalidArgument("too many range tombstones for a run".to_owned()))?;
        if !tombstones.is_empty() {
            self.put(self.options.compression, &encode_tombstones(tombstones))?;
        }
        Ok((smallest, largest.unwrap_or_default()))
    }

    fn put_view(&mut self, embed: impl FnOnce(FileId, u64) -> Result<Vec<u8>>) -> Result<()> {
        let offset = self.position().next_multiple_of(PAGE_BYTES);
        let view = embed(self.file_id, offset)?;
        if view.is_empty() {
            return Ok(());
        }
        let padding = offset - self.position();
        self.buffer.resize(self.buffer.len() + padding as usize, 0);
        self.footer.view_offset = offset;
        self.footer.view_bytes = view.len() as u64;
        self.footer.view_checksum = checksum(self.file_id, offset, &view);
        self.flush()?;
        self.write(&view)
    }

    fn put_footer(
        &mut self,
        smallest: Vec<u8>,
        largest: Vec<u8>,
        blob_uses: Vec<BlobUse>,
        expiries: Expiries,
    ) -> RunMeta {
        self.footer.blocks = self.blocks.len() as u32;
        self.footer.file_bytes = self.position() + FOOTER_LEN as u64;
        self.buffer.extend_from_slice(&self.footer.encode(self.file_id));
        self.footer.meta(self.number, self.file_id, smallest, largest, blob_uses, expiries)
    }

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn put(&mut self, compression: Compression, raw: &[u8]) -> Result<()> {
        if u32::try_from(raw.len()).is_err() {
            return Err(Error::InvalidArgument("index or range tombstones of a run pass 4 GiB".to_owned()));
        }
        put_stamped(&mut self.buffer, self.written, self.file_id, compression, raw);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> Result<()> {
        let left = self.write_bytes - (self.written % self.write_bytes as u64) as usize;
        if self.buffer.len() < left {
            return Ok(());
        }
        let end = left + (self.buffer.len() - left) / self.write_bytes * self.write_bytes;
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer[..end]);
        buffer.drain(..end);
        buffer.shrink_to(2 * self.write_bytes);
        self.buffer = buffer;
        result
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        buffer.clear();
        buffer.shrink_to(2 * self.write_bytes);
        self.buffer = buffer;
        result
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.written).map_err(|e| Error::io("write", &self.path, e))?;
        self.written += bytes.len() as u64;
        let waiting = self.written - self.write_back_from;
        if waiting >= WRITE_BACK_BYTES {
            // The device works during the next blocks, so the final sync has little left to do.
            self.file.start_write_back(self.write_back_from, waiting);
            self.write_back_from = self.written;
        }
        Ok(())
    }
}

fn put_stamped(buffer: &mut Vec<u8>, written: u64, file_id: FileId, compression: Compression, raw: &[u8]) -> u64 {
    let start = buffer.len();
    put_unit(buffer, compression, raw);
    stamp_unit(&mut buffer[start..], file_id, written + start as u64);
    (buffer.len() - start) as u64
}
