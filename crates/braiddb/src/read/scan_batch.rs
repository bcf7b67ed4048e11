//! The rows of one source of a scan, decoded ahead and ready to be merged.

use crate::{
    base::{Beyond, ROW_LANES, RowSlots, SequenceNumber, near_lane},
    memtable::EntryBatch,
    view::RowBatch,
};
use std::cmp::Ordering;

/// The rows of one source.
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

/// A row as it is merged: its head, and the rest in one number, since items are mostly copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Item {
    pub head: u64,
    /// Lane in the lowest byte, strand above; then whether it is a tombstone.
    tag: u64,
}

impl Item {
    #[inline(always)]
    fn new(scan_batch: u8, lane: usize, is_tombstone: bool) -> Item {
        Item { head: 0, tag: u64::from(is_tombstone) << 16 | u64::from(scan_batch) << 8 | lane as u64 }
    }

    /// The same row with another head.
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

/// How heads are taken: the first bytes of a key as a number.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// What all keys have in common at least; heads are taken after it.
    pub prefix_len: usize,
    /// If not, heads are inverted, so that lesser ones always come first.
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

    /// Which of two keys comes first.
    pub fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        if self.is_forward { a.cmp(b) } else { b.cmp(a) }
    }
}

/// Zeros stand for what is missing.
fn short_head(bytes: &[u8]) -> u64 {
    bytes.iter().zip((0..8).rev()).fold(0, |head, (&byte, place)| head | u64::from(byte) << (8 * place))
}

/// A round mostly takes fewer rows than these of a strand that has others after them.
const NEAR: usize = 7;

/// A batch, and how far it has been merged.
#[derive(Debug)]
pub struct ScanBatch {
    pub batch: Batch,
    index: u8,
    /// The rows of the batch in the order in which they come. Heads are read in one go, since a merge that waited for each
    /// key would wait for memory each time.
    items: [Item; ROW_LANES],
    count: usize,
    /// How many have been passed, and how many are when the round is over.
    at: usize,
    passed: usize,
    /// The least and the greatest sequence number that its rows can have, and whether they are known one by one.
    sequences: (SequenceNumber, SequenceNumber),
    has_sequences: bool,
    /// Whether it has begun with rows that nobody has asked about yet.
    has_news: bool,
}

impl ScanBatch {
    /// One that has no rows. `index` is its place among others.
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

    /// Says what sequence numbers its rows can have.
    pub fn set_sequences(&mut self, sequences: (SequenceNumber, SequenceNumber)) {
        self.sequences = sequences;
    }

    /// What sequence numbers its rows can have.
    pub fn sequences(&self) -> (SequenceNumber, SequenceNumber) {
        self.sequences
    }

    /// Says whether the number of each row is to be decoded.
    pub fn set_has_sequences(&mut self, has_sequences: bool) {
        self.has_sequences = has_sequences;
        if let Batch::Rows(batch) = &mut self.batch {
            batch.set_with_sequences(has_sequences);
        }
    }

    /// Begins with what is in the batch now.
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

    /// Takes the heads of all rows anew.
    pub fn take_heads(&mut self, heads: Heads) {
        let slots = self.batch.slots();
        for item in &mut self.items[..self.count] {
            item.head = heads.of(slots.key(item.lane()));
        }
    }

    /// Lets go of all rows, and of the memory they stand in.
    pub fn release(&mut self) {
        match &mut self.batch {
            Batch::Entries(batch) => batch.release(),
            Batch::Rows(batch) => batch.release(),
        }
        (self.count, self.at) = (0, 0);
    }

    /// The same, and lets go of the runs they are of.
    pub fn release_runs(&mut self) {
        self.release();
        if let Batch::Rows(batch) = &mut self.batch {
            batch.release_runs();
        }
    }

    /// The same as [`ScanBatch::release`], where a scan ends and another begins.
    pub fn restart(&mut self) {
        let rest = self.items().iter().fold(0, |lanes, item| lanes | 1 << item.lane());
        if let Batch::Rows(batch) = &mut self.batch {
            batch.pass(rest);
            batch.restart();
        }
        self.release();
    }

    /// The rows that have not been passed.
    #[inline]
    pub fn items(&self) -> &[Item] {
        &self.items[self.at..self.count]
    }

    /// The rows that have not been passed and come no later than one of this head and this key, if there is such a limit; to be passed by
    /// [`ScanBatch::pass_taken`].
    #[inline]
    pub fn take(&mut self, limit: Option<(u64, &[u8])>, heads: Heads) -> &[Item] {
        let rest = &self.items[self.at..self.count];
        let mut taken = rest.len();
        if let Some((head, key)) = limit {
            if rest.last().is_some_and(|last| last.head > head) {
                // Counted without a branch that cannot be foretold, and not far past where it mostly ends.
                let near = if rest.get(NEAR).is_some_and(|item| item.head > head) { &rest[..NEAR] } else { rest };
                taken = near.iter().filter(|item| item.head <= head).count();
            }
            // Of those of the same head, some may come later.
            let slots = self.batch.slots();
            let is_past = |item: Item| item.head == head && heads.compare(slots.key(item.lane()), key).is_gt();
            while taken > 0 && is_past(rest[taken - 1]) {
                taken -= 1;
            }
        }
        self.passed = self.at + taken;
        &rest[..taken]
    }

    /// Passes what was taken last.
    pub fn pass_taken(&mut self) {
        self.at = self.passed;
    }

    /// Passes the first row.
    pub fn pass_first(&mut self) {
        self.at += 1;
    }

    /// The first row that has not been passed.
    pub fn first(&self) -> Option<Item> {
        self.items().first().copied()
    }

    /// The first and the last row that have not been passed.
    #[inline]
    pub fn ends(&self) -> Option<[Item; 2]> {
        let items = self.items();
        Some([*items.first()?, *items.last()?])
    }

    /// Whether it has begun with other rows since it was asked last.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// The key of a row.
    #[inline]
    pub fn key(&self, item: Item) -> &[u8] {
        self.batch.slots().key(item.lane())
    }

    /// A number that says which of two rows of one key is newer.
    pub fn sequence(&self, item: Item) -> SequenceNumber {
        if self.has_sequences { self.batch.slots().sequence(item.lane()) } else { self.sequences.0 }
    }

    /// Whether there may be rows after those that are here, of which nothing is known yet.
    pub fn may_have_more(&self) -> bool {
        matches!(self.batch.beyond(), Beyond::More | Beyond::Row(_))
    }

    /// Whether none is left here, though there may be more.
    pub fn is_used_up(&self) -> bool {
        self.at >= self.count && self.may_have_more()
    }
}
