use crate::{
    base::{Beyond, ROW_LANES, RowSlots, SequenceNumber, near_lane},
    memtable::EntryBatch,
    view::RowBatch,
};
use std::cmp::Ordering;

#[derive(Debug)]
pub enum Batch {
    Entries(EntryBatch),
    Rows(RowBatch),
}

impl Batch {
    #[inline(always)]
    pub fn slots(&self) -> &RowSlots {
        match self {
            Batch::Entries(batch) => batch.slots(),
            Batch::Rows(batch) => batch.slots(),
        }
    }

    fn lanes(&self) -> u32 {
        match self {
            Batch::Entries(batch) => batch.lanes(),
            Batch::Rows(batch) => batch.lanes(),
        }
    }

    fn tombstones(&self) -> u32 {
        match self {
            Batch::Entries(batch) => batch.tombstones(),
            Batch::Rows(batch) => batch.tombstones(),
        }
    }

    pub fn beyond(&self) -> Beyond {
        match self {
            Batch::Entries(batch) => batch.beyond(),
            Batch::Rows(batch) => batch.beyond(),
        }
    }
}

/// Head, and all else in one number, since items are copied often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Item {
    pub head: u64,
    /// Bits 0 to 7: lane; 8 to 15: batch; 16: tombstone.
    tag: u64,
}

impl Item {
    #[inline(always)]
    fn new(scan_batch: u8, lane: usize, is_tombstone: bool) -> Item {
        Item { head: 0, tag: u64::from(is_tombstone) << 16 | u64::from(scan_batch) << 8 | lane as u64 }
    }

    #[inline(always)]
    pub fn with_head(self, head: u64) -> Item {
        Item { head, ..self }
    }

    #[inline(always)]
    pub fn lane(self) -> usize {
        (self.tag & 0xff) as usize
    }

    #[inline(always)]
    pub fn scan_batch(self) -> usize {
        (self.tag >> 8 & 0xff) as usize
    }

    #[inline(always)]
    pub fn is_tombstone(self) -> bool {
        self.tag >> 16 != 0
    }
}

/// Heads: the first bytes of keys as numbers.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Bytes to skip: a prefix that all keys share.
    pub prefix_len: usize,
    /// If false, heads are inverted, so that smaller ones always come first.
    pub is_forward: bool,
}

impl Heads {
    #[inline(always)]
    pub fn of(self, key: &[u8]) -> u64 {
        let rest = key.get(self.prefix_len..).unwrap_or_default();
        let head = match rest.first_chunk() {
            Some(head) => u64::from_be_bytes(*head),
            None => short_head(rest),
        };
        head ^ if self.is_forward { 0 } else { u64::MAX }
    }

    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        if self.is_forward { a.cmp(b) } else { b.cmp(a) }
    }
}

fn short_head(bytes: &[u8]) -> u64 {
    bytes.iter().zip((0..8).rev()).fold(0, |head, (&byte, place)| head | u64::from(byte) << (8 * place))
}

/// Rows that a round mostly takes fewer than, from a batch with more rows.
const NEAR: usize = 7;

#[derive(Debug)]
pub struct ScanBatch {
    pub batch: Batch,
    index: u8,
    /// Rows in scan order. Heads are read in one pass, to overlap the memory waits for keys.
    items: [Item; ROW_LANES],
    count: usize,
    /// Rows merged before this round, and at its end.
    at: usize,
    passed: usize,
    /// Range of the rows' sequence numbers, and whether each is decoded.
    sequences: (SequenceNumber, SequenceNumber),
    has_sequences: bool,
    has_news: bool,
}

impl ScanBatch {
    pub fn new(batch: Batch, index: u8) -> ScanBatch {
        let items = [Item::default(); ROW_LANES];
        ScanBatch {
            batch,
            index,
            items,
            count: 0,
            at: 0,
            passed: 0,
            sequences: (0, 0),
            has_sequences: true,
            has_news: false,
        }
    }

    pub fn set_sequences(&mut self, sequences: (SequenceNumber, SequenceNumber)) {
        self.sequences = sequences;
    }

    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        self.sequences
    }

    pub fn set_has_sequences(&mut self, has_sequences: bool) {
        self.has_sequences = has_sequences;
        if let Batch::Rows(batch) = &mut self.batch {
            batch.set_with_sequences(has_sequences);
        }
    }

    pub fn begin(&mut self, heads: Heads) {
        let (mut rest, tombstones) = (self.batch.lanes(), self.batch.tombstones());
        (self.count, self.at, self.has_news) = (rest.count_ones() as usize, 0, true);
        for item in &mut self.items[..self.count] {
            let lane = near_lane(rest, heads.is_forward);
            rest &= !(1 << lane);
            *item = Item::new(self.index, lane, tombstones >> lane & 1 != 0);
        }
        self.take_heads(heads);
    }

    pub fn take_heads(&mut self, heads: Heads) {
        let slots = self.batch.slots();
        for item in &mut self.items[..self.count] {
            item.head = heads.of(slots.key(item.lane()));
        }
    }

    pub fn release(&mut self) {
        match &mut self.batch {
            Batch::Entries(batch) => batch.release(),
            Batch::Rows(batch) => batch.release(),
        }
        (self.count, self.at) = (0, 0);
    }

    pub fn release_runs(&mut self) {
        self.release();
        if let Batch::Rows(batch) = &mut self.batch {
            batch.release_runs();
        }
    }

    pub fn restart(&mut self) {
        let rest = self.items().iter().fold(0, |lanes, item| lanes | 1 << item.lane());
        if let Batch::Rows(batch) = &mut self.batch {
            batch.pass(rest);
            batch.restart();
        }
        self.release();
    }

    #[inline]
    pub fn items(&self) -> &[Item] {
        &self.items[self.at..self.count]
    }

    /// Rows not yet merged, up to a limit; to be passed by [`ScanBatch::pass_taken`].
    #[inline]
    pub fn take(&mut self, limit: Option<(u64, &[u8])>, heads: Heads) -> &[Item] {
        let rest = &self.items[self.at..self.count];
        let mut taken = rest.len();
        if let Some((head, key)) = limit {
            if rest.last().is_some_and(|last| last.head > head) {
                let near = if rest.get(NEAR).is_some_and(|item| item.head > head) { &rest[..NEAR] } else { rest };
                taken = near.iter().filter(|item| item.head <= head).count();
            }
            let slots = self.batch.slots();
            // Rows with the limit's head can come after its key.
            let is_past = |item: Item| item.head == head && heads.compare(slots.key(item.lane()), key).is_gt();
            while taken > 0 && is_past(rest[taken - 1]) {
                taken -= 1;
            }
        }
        self.passed = self.at + taken;
        &rest[..taken]
    }

    pub fn pass_taken(&mut self) {
        self.at = self.passed;
    }

    pub fn pass_first(&mut self) {
        self.at += 1;
    }

    pub fn first(&self) -> Option<Item> {
        self.items().first().copied()
    }

    #[inline]
    pub fn ends(&self) -> Option<[Item; 2]> {
        let items = self.items();
        Some([*items.first()?, *items.last()?])
    }

    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    #[inline]
    pub fn key(&self, item: Item) -> &[u8] {
        self.batch.slots().key(item.lane())
    }

    pub fn sequence(&self, item: Item) -> SequenceNumber {
        if self.has_sequences { self.batch.slots().sequence(item.lane()) } else { self.sequences.0 }
    }

    pub fn may_have_more(&self) -> bool {
        matches!(self.batch.beyond(), Beyond::More | Beyond::Row(_))
    }

    pub fn is_used_up(&self) -> bool {
        self.at >= self.count && self.may_have_more()
    }
}
