//! Merges batches of rows decoded ahead, for scans whose sources alternate.
//!
//! A round merges all batches, each of one source, until one is exhausted; the scan then walks the
//! picked rows. Of equal keys the newest is picked; a tombstone hides its key.
//!
//! Rows are compared by key heads: eight bytes as a number, after the prefix that all present keys
//! share. Batches are merged newest first, in pairs, without branches that depend on keys: a
//! mispredicted branch costs more than all other work. Rows with equal heads are then sorted by
//! key. If sequence numbers of batches overlap, the round merges by whole keys.

use super::{Heads, Item, ScanBatch};
use crate::base::{Beyond, shared_prefix_len};

const HEAD_BYTES: usize = 8;
/// Minimum bytes of a head that distinguish keys; with fewer, a longer prefix is skipped.
const HEAD_BYTES_USED_MIN: usize = 4;
pub const BATCHES_MAX: usize = 256;

/// Merges batches. If there are picks, the scan is at `picks[at]`.
#[derive(Debug)]
pub struct BatchMerger {
    pub scan_batches: Vec<ScanBatch>,
    heads: Heads,
    prefix: Vec<u8>,
    /// Batches from newest to oldest, if `are_apart`: all rows of one are newer than all of the
    /// next.
    by_age: Vec<u8>,
    are_apart: bool,
    picks: Vec<Item>,
    picked: usize,
    at: usize,
    solo_rounds: u32,
    has_begun: bool,
    merged: Vec<Item>,
    spare: Vec<Item>,
    ends: Vec<usize>,
    limit: Vec<u8>,
    /// Indexes in `merged` of rows whose head equals the previous row's.
    ties: Vec<usize>,
}

impl Default for BatchMerger {
    fn default() -> BatchMerger {
        BatchMerger {
            scan_batches: Vec::new(),
            heads: Heads { prefix_len: 0, is_forward: true },
            prefix: Vec::new(),
            by_age: Vec::new(),
            are_apart: false,
            picks: Vec::new(),
            picked: 0,
            at: 0,
            solo_rounds: 0,
            has_begun: false,
            merged: Vec::new(),
            spare: Vec::new(),
            ends: Vec::new(),
            limit: Vec::new(),
            ties: Vec::new(),
        }
    }
}

impl BatchMerger {
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.picked != 0
    }

    pub fn is_forward(&self) -> bool {
        self.heads.is_forward
    }

    /// Not inlined, so that scans of one batch stay small.
    #[inline(never)]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        if self.at >= self.picked {
            return None;
        }
        let item = self.picks[self.at];
        self.scan_batches[item.scan_batch()].batch.slots().row(item.lane())
    }

    #[inline]
    pub fn step(&mut self, is_forward: bool) -> bool {
        let is_there = self.at + 1 < self.picked && self.heads.is_forward == is_forward;
        self.at += usize::from(is_there);
        is_there
    }

    /// Counts later rows whose keys satisfy `is_kept`, up to the first rejected one; 0 backward.
    pub fn rows_after(&self, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        let after = self.picks.get(self.at + 1..self.picked).filter(|_| self.is_forward()).unwrap_or_default();
        let is_kept = |item: &Item| is_kept(self.scan_batches[item.scan_batch()].key(*item));
        match after.last() {
            Some(last) if is_kept(last) => after.len() as u32,
            _ => after.iter().take_while(|item| is_kept(item)).count() as u32,
        }
    }

    pub fn leave(&mut self) {
        (self.picked, self.at) = (0, 0);
    }

    pub fn release(&mut self) {
        self.leave();
        self.scan_batches.iter_mut().for_each(ScanBatch::release);
        self.has_begun = false;
    }

    pub fn release_runs(&mut self) {
        self.leave();
        self.scan_batches.iter_mut().for_each(ScanBatch::release_runs);
    }

    pub fn restart(&mut self) {
        self.leave();
        if self.has_begun {
            self.scan_batches.iter_mut().for_each(ScanBatch::restart);
            self.has_begun = false;
        }
    }

    pub fn solo_rounds(&self) -> u32 {
        self.solo_rounds
    }

    /// True if a batch may have rows, and no batch is stopped by a row that cannot be decoded
    /// ahead.
    pub fn may_continue(&self) -> bool {
        let is_blocked = |s: &ScanBatch| s.items().is_empty() && matches!(s.batch.beyond(), Beyond::Row(_));
        self.scan_batches.iter().any(|s| !s.items().is_empty() || s.is_used_up())
            && !self.scan_batches.iter().any(is_blocked)
    }

    /// Starts a direction: determines if batches can be ordered by age. Call before rows are
    /// decoded and after sequence numbers are set.
    pub fn begin(&mut self, is_forward: bool) -> Heads {
        self.has_begun = true;
        let scan_batches = &mut self.scan_batches;
        self.by_age.clear();
        self.by_age.extend((0..scan_batches.len()).map(|index| index as u8));
        self.by_age.sort_by_key(|&index| std::cmp::Reverse(scan_batches[usize::from(index)].sequences()));
        self.are_apart = self.by_age.windows(2).all(|pair| {
            let [newer, older] = [0, 1].map(|at| scan_batches[usize::from(pair[at])].sequences());
            older.1 < newer.0
        });
        let has_sequences = !self.are_apart;
        scan_batches.iter_mut().for_each(|scan_batch| scan_batch.set_has_sequences(has_sequences));
        self.heads.is_forward = is_forward;
        self.solo_rounds = 0;
        self.heads
    }

    pub fn heads(&self) -> Heads {
        self.heads
    }

    /// Merges until a batch is exhausted that may have more.
    pub fn merge(&mut self) {
        self.leave();
        self.choose_heads();
        if self.are_apart { self.merge_by_heads() } else { self.merge_by_keys() }
    }

    /// Takes heads after another prefix if the present keys share less than before, or much more.
    fn choose_heads(&mut self) {
        if self.are_heads_good() {
            return;
        }
        let BatchMerger { scan_batches, heads, prefix, .. } = self;
        for scan_batch in &mut *scan_batches {
            scan_batch.take_news();
        }
        let keys = scan_batches.iter().flat_map(|s| s.ends().into_iter().flatten().map(|item| s.key(item)));
        let mut some_key = None;
        let prefix_len = keys.map(|key| shared_prefix_len(some_key.get_or_insert(key), key)).min().unwrap_or_default();
        let is_elsewhere =
            prefix_len < heads.prefix_len || prefix_len > heads.prefix_len + (HEAD_BYTES - HEAD_BYTES_USED_MIN);
        let heads_at = if is_elsewhere { prefix_len } else { heads.prefix_len };
        // Other keys can have another prefix of the same length.
        prefix.clear();
        prefix.extend_from_slice(some_key.and_then(|key| key.get(..heads_at)).unwrap_or_default());
        if is_elsewhere {
            heads.prefix_len = prefix_len;
            scan_batches.iter_mut().for_each(|scan_batch| scan_batch.take_heads(*heads));
        }
    }

    /// True if heads are still good. Reads only keys that were not read before.
    fn are_heads_good(&mut self) -> bool {
        let BatchMerger { scan_batches, prefix, .. } = self;
        let (mut least, mut greatest) = (u64::MAX, 0);
        for scan_batch in scan_batches {
            let Some(ends) = scan_batch.ends() else { continue };
            let is_new = scan_batch.take_news();
            if is_new && !ends.iter().all(|item| scan_batch.key(*item).starts_with(prefix)) {
                return false;
            }
            (least, greatest) = (least.min(ends[0].head), greatest.max(ends[1].head));
        }
        let bytes_in_common = (least ^ greatest).leading_zeros() as usize / 8;
        bytes_in_common <= HEAD_BYTES - HEAD_BYTES_USED_MIN
    }

    fn merge_by_heads(&mut self) {
        // Rows after the last one of a batch that may have more are unknown.
        let head = self.find_limit();
        let BatchMerger { scan_batches, heads, by_age, merged, spare, ends, solo_rounds, limit, .. } = self;
        let limit = head.map(|head| (head, limit.as_slice()));
        merged.clear();
        ends.clear();
        for &index in &*by_age {
            let items = scan_batches[usize::from(index)].take(limit, *heads);
            merged.extend_from_slice(items);
            if !items.is_empty() {
                ends.push(merged.len());
            }
        }
        *solo_rounds = if ends.len() == 1 { *solo_rounds + 1 } else { 0 };
        merge_runs(merged, spare, ends);
        self.pick_merged();
        self.scan_batches.iter_mut().for_each(ScanBatch::pass_taken);
    }

    /// Returns the smallest head of the last rows of batches that may have more; key: `limit`.
    fn find_limit(&mut self) -> Option<u64> {
        let BatchMerger { scan_batches, heads, limit, .. } = self;
        let lasts = scan_batches.iter().filter(|s| s.may_have_more()).filter_map(|s| Some((s, *s.items().last()?)));
        let first =
            lasts.min_by(|(a, x), (b, y)| x.head.cmp(&y.head).then_with(|| heads.compare(a.key(*x), b.key(*y))));
        let (scan_batch, last) = first?;
        limit.clear();
        limit.extend_from_slice(scan_batch.key(last));
        Some(last.head)
    }

    /// Picks the first row of each key, except tombstones. Equal heads mostly mean equal keys.
    fn pick_merged(&mut self) {
        let BatchMerger { scan_batches, merged, picks, ties, .. } = self;
        let room = merged.len() + 1;
        if picks.len() < room {
            picks.resize(room, Item::default());
        }
        if ties.len() < room {
            ties.resize(room, 0);
        }
        let (mut picked, mut tied) = (0, 0);
        let mut before = merged.first().map_or(0, |item| !item.head);
        for (place, item) in merged.iter().enumerate() {
            let is_tied = item.head == before;
            before = item.head;
            picks[picked] = *item;
            picked += usize::from(!(item.is_tombstone() | is_tied));
            ties[tied] = place;
            tied += usize::from(is_tied);
        }
        let key = |item: Item| scan_batches[item.scan_batch()].key(item);
        if ties[..tied].iter().all(|&place| are_equal(key(merged[place - 1]), key(merged[place]))) {
            self.picked = picked;
        } else {
            self.sort_ties();
            self.pick_sorted();
        }
    }

    /// Sorts by key, newest first. Needed where a group's keys share more than a head holds.
    fn sort_ties(&mut self) {
        let BatchMerger { scan_batches, heads, merged, spare, .. } = self;
        let key = |item: &Item| scan_batches[item.scan_batch()].key(*item);
        let rest = Heads { prefix_len: heads.prefix_len + HEAD_BYTES, ..*heads };
        for tied in merged.chunk_by_mut(|a, b| a.head == b.head).filter(|tied| tied.len() > 1) {
            let head = tied[0].head;
            spare.clear();
            spare.extend(tied.iter().map(|item| item.with_head(rest.of(key(item)))));
            spare.sort_by_key(|item| item.head);
            let are_sorted = spare.windows(2).all(|w| w[0].head != w[1].head || are_equal(key(&w[0]), key(&w[1])));
            if !are_sorted {
                spare.sort_by(|a, b| heads.compare(key(a), key(b)));
            }
            tied.iter_mut().zip(&*spare).for_each(|(item, sorted)| *item = sorted.with_head(head));
        }
    }

    fn pick_sorted(&mut self) {
        let BatchMerger { scan_batches, merged, picks, .. } = self;
        let key = |item: Item| scan_batches[item.scan_batch()].key(item);
        let mut picked = 0;
        for (place, item) in merged.iter().enumerate() {
            let is_hidden = place
                .checked_sub(1)
                .map(|before| merged[before])
                .is_some_and(|before| before.head == item.head && are_equal(key(before), key(*item)));
            picks[picked] = *item;
            picked += usize::from(!(item.is_tombstone() | is_hidden));
        }
        self.picked = picked;
    }

    fn merge_by_keys(&mut self) {
        let BatchMerger { scan_batches, heads, picks, picked, .. } = self;
        self.solo_rounds = 0;
        while let Some(first) = first_batch(scan_batches, *heads) {
            let Some(item) = scan_batches[first].first() else { break };
            for other in (0..scan_batches.len()).filter(|&other| other != first) {
                let is_hidden = |of: Item| scan_batches[other].key(of) == scan_batches[first].key(item);
                if scan_batches[other].first().is_some_and(is_hidden) {
                    scan_batches[other].pass_first();
                }
            }
            scan_batches[first].pass_first();
            if !item.is_tombstone() {
                picks.truncate(*picked);
                picks.push(item);
                *picked += 1;
            }
            if scan_batches.iter().any(ScanBatch::is_used_up) {
                break;
            }
        }
    }
}

fn first_batch(scan_batches: &[ScanBatch], heads: Heads) -> Option<usize> {
    let firsts = (0..scan_batches.len()).filter_map(|index| Some((index, scan_batches[index].first()?)));
    let first = firsts.min_by(|&(a, x), &(b, y)| {
        let (a, b) = (&scan_batches[a], &scan_batches[b]);
        heads.compare(a.key(x), b.key(y)).then_with(|| b.sequence(y).cmp(&a.sequence(x)))
    });
    first.map(|(index, _)| index)
}

#[inline(always)]
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let ((a_words, a_rest), (b_words, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && a_words.iter().zip(b_words).all(|(x, y)| u64::from_ne_bytes(*x) == u64::from_ne_bytes(*y))
        && a_rest.iter().zip(b_rest).all(|(x, y)| x == y)
}

/// Merges adjacent sorted runs, which end at `ends`, in pairs: O(n log runs), stable.
fn merge_runs(items: &mut Vec<Item>, spare: &mut Vec<Item>, ends: &mut Vec<usize>) {
    while ends.len() > 1 {
        spare.truncate(items.len());
        spare.resize(items.len(), Item::default());
        let mut start = 0;
        for pair in ends.chunks(2) {
            let (middle, end) = (pair[0], pair[pair.len() - 1]);
            merge_items(&items[start..middle], &items[middle..end], &mut spare[start..end]);
            start = end;
        }
        std::mem::swap(items, spare);
        let count = ends.len().div_ceil(2);
        for place in 0..count {
            ends[place] = ends[(2 * place + 1).min(ends.len() - 1)];
        }
        ends.truncate(count);
    }
}

fn merge_items(newer: &[Item], older: &[Item], merged: &mut [Item]) {
    let (mut a, mut b) = (0, 0);
    for place in &mut *merged {
        if a >= newer.len() || b >= older.len() {
            break;
        }
        let (x, y) = (newer[a], older[b]);
        let is_newer = x.head <= y.head;
        *place = if is_newer { x } else { y };
        a += usize::from(is_newer);
        b += usize::from(!is_newer);
    }
    let at = a + b;
    let (of_newer, of_older) = (&newer[a..], &older[b..]);
    merged[at..at + of_newer.len()].copy_from_slice(of_newer);
    merged[at + of_newer.len()..].copy_from_slice(of_older);
}
