//! Sources of a scan that take turns, each with rows decoded ahead, merged by the heads of their keys.
//!
//! A strand is the batch of one source. A round merges what all of them have until one has no row left, and notes which row
//! of which strand comes next: the scan then walks these picks. Of equal keys the newest is picked and the others are
//! passed over; a tombstone is passed over with all that it hides.
//!
//! Heads are eight bytes of a key as a number, taken after what all keys at hand have in common. Strands are merged by
//! heads alone, newest first, two at a time and without a branch that depends on a key: which source is next cannot be
//! foretold, and a wrong guess costs more than all else. Afterwards rows of equal heads are neighbours, and are put in order if
//! their keys turn out to differ. If age does not tell strands apart, the round is merged by keys instead.

use super::{Heads, Item, ScanBatch};
use crate::base::{Beyond, shared_prefix_len};

/// So many bytes a head has.
const HEAD_BYTES: usize = 8;
/// So many bytes of a head must tell keys apart before heads are taken elsewhere.
const HEAD_BYTES_USED_MIN: usize = 4;
/// There are no more strands than this.
pub const BATCHES_MAX: usize = 256;

/// Strands, and the rows of them that come next. While there are picks, the scan stands on the one at `at`.
#[derive(Debug)]
pub struct BatchMerger {
    pub scan_batches: Vec<ScanBatch>,
    heads: Heads,
    /// What all keys have in common, of the length that `heads` says.
    prefix: Vec<u8>,
    /// The strands from the newest to the oldest, if all rows of one are newer than all of the next.
    by_age: Vec<u8>,
    are_apart: bool,
    picks: Vec<Item>,
    picked: usize,
    at: usize,
    /// How many rounds in a row were of one strand alone.
    solo_rounds: u32,
    /// Whether the strands may have rows, or the blocks of some.
    has_begun: bool,
    merged: Vec<Item>,
    spare: Vec<Item>,
    /// Where in `merged` the items of each strand end.
    ends: Vec<usize>,
    /// The key up to which a round goes.
    limit: Vec<u8>,
    /// The places in `merged` of rows that have the head of the row before.
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
    /// Whether it stands on a row.
    #[inline]
    pub fn is_on_row(&self) -> bool {
        self.picked != 0
    }

    /// Whether its rows go forward.
    pub fn is_forward(&self) -> bool {
        self.heads.is_forward
    }

    /// The row it stands on. Not inlined, so that what reads a batch alone stays small.
    #[inline(never)]
    pub fn row(&self) -> Option<(&[u8], &[u8])> {
        if self.at >= self.picked {
            return None;
        }
        let item = self.picks[self.at];
        self.scan_batches[item.scan_batch()].batch.slots().row(item.lane())
    }

    /// Goes on to the next row in a direction, if it is here.
    #[inline]
    pub fn step(&mut self, is_forward: bool) -> bool {
        let is_there = self.at + 1 < self.picked && self.heads.is_forward == is_forward;
        self.at += usize::from(is_there);
        is_there
    }

    /// How many rows come after the one it stands on, going forward, whose keys are kept, as far as there is none between that is not.
    pub fn rows_after(&self, is_kept: impl Fn(&[u8]) -> bool) -> u32 {
        let after = self.picks.get(self.at + 1..self.picked).filter(|_| self.is_forward()).unwrap_or_default();
        let is_kept = |item: &Item| is_kept(self.scan_batches[item.scan_batch()].key(*item));
        match after.last() {
            Some(last) if is_kept(last) => after.len() as u32,
            _ => after.iter().take_while(|item| is_kept(item)).count() as u32,
        }
    }

    /// Stands nowhere. What the strands have stays.
    pub fn leave(&mut self) {
        (self.picked, self.at) = (0, 0);
    }

    /// Lets go of all rows, and of the memory they stand in.
    pub fn release(&mut self) {
        self.leave();
        self.scan_batches.iter_mut().for_each(ScanBatch::release);
        self.has_begun = false;
    }

    /// The same, and lets go of the runs.
    pub fn release_runs(&mut self) {
        self.leave();
        self.scan_batches.iter_mut().for_each(ScanBatch::release_runs);
    }

    /// The same as [`BatchMerger::release`], where a scan ends and another begins.
    pub fn restart(&mut self) {
        self.leave();
        if self.has_begun {
            self.scan_batches.iter_mut().for_each(ScanBatch::restart);
            self.has_begun = false;
        }
    }

    /// How many rounds in a row were of one strand alone.
    pub fn solo_rounds(&self) -> u32 {
        self.solo_rounds
    }

    /// Whether some strand has rows left, or may have more of them that can be decoded ahead, and none has a row next that
    /// cannot.
    pub fn may_go_on(&self) -> bool {
        let is_blocked = |s: &ScanBatch| s.items().is_empty() && matches!(s.batch.beyond(), Beyond::Row(_));
        self.scan_batches.iter().any(|s| !s.items().is_empty() || s.is_used_up())
            && !self.scan_batches.iter().any(is_blocked)
    }

    /// Begins to go in a direction. Finds out whether all rows of one strand are newer than all of another, as where memtables
    /// follow each other. To be called before rows are decoded, and once the strands know their sequence numbers.
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

    /// How heads are taken now.
    pub fn heads(&self) -> Heads {
        self.heads
    }

    /// Merges what the strands have, until one has no row left but may have more. Stands on the first row that is shown, if
    /// there is one.
    pub fn merge(&mut self) {
        self.leave();
        self.choose_heads();
        if self.are_apart { self.merge_by_heads() } else { self.merge_by_keys() }
    }

    /// Takes heads elsewhere if the keys that are here now have less in common than those before, or a good deal more.
    fn choose_heads(&mut self) {
        if self.are_heads_good() {
            return;
        }
        let BatchMerger { scan_batches, heads, prefix, .. } = self;
        // All of them are looked at now.
        for scan_batch in &mut *scan_batches {
            scan_batch.take_news();
        }
        let keys = scan_batches.iter().flat_map(|s| s.ends().into_iter().flatten().map(|item| s.key(item)));
        let mut some_key = None;
        let prefix_len = keys.map(|key| shared_prefix_len(some_key.get_or_insert(key), key)).min().unwrap_or_default();
        let is_elsewhere =
            prefix_len < heads.prefix_len || prefix_len > heads.prefix_len + (HEAD_BYTES - HEAD_BYTES_USED_MIN);
        let heads_at = if is_elsewhere { prefix_len } else { heads.prefix_len };
        // Other keys may have another prefix of the same length.
        prefix.clear();
        prefix.extend_from_slice(some_key.and_then(|key| key.get(..heads_at)).unwrap_or_default());
        if is_elsewhere {
            heads.prefix_len = prefix_len;
            scan_batches.iter_mut().for_each(|scan_batch| scan_batch.take_heads(*heads));
        }
    }

    /// Whether heads need not be taken elsewhere, found out without a look at keys that have been looked at before.
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

    /// A round by heads.
    fn merge_by_heads(&mut self) {
        // Past the last row of a strand that may have more, nothing is known yet.
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

    /// The head of the first of the last rows of all strands that may have more, if there are any such; its key stands in `limit` then.
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

    /// Picks the first row of each key, unless it is a tombstone. Rows of one head mostly are of one key.
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

    /// Puts rows of one head in order, the newest of each key first, as they stand if the keys are the same. So it is where the keys of a group have
    /// more in common than a head holds, and rows of other groups are at hand, which have less.
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

    /// [`BatchMerger::pick_merged`] where rows of one head may be of several keys.
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

    /// A round by whole keys and sequence numbers.
    fn merge_by_keys(&mut self) {
        let BatchMerger { scan_batches, heads, picks, picked, .. } = self;
        self.solo_rounds = 0;
        while let Some(first) = first_strand(scan_batches, *heads) {
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

/// The strand whose row comes first; of rows of one key, that of the newest.
fn first_strand(scan_batches: &[ScanBatch], heads: Heads) -> Option<usize> {
    let firsts = (0..scan_batches.len()).filter_map(|index| Some((index, scan_batches[index].first()?)));
    let first = firsts.min_by(|&(a, x), &(b, y)| {
        let (a, b) = (&scan_batches[a], &scan_batches[b]);
        heads.compare(a.key(x), b.key(y)).then_with(|| b.sequence(y).cmp(&a.sequence(x)))
    });
    first.map(|(index, _)| index)
}

/// Whether two short strings are equal, found out without a call.
#[inline(always)]
fn are_equal(a: &[u8], b: &[u8]) -> bool {
    let ((a_words, a_rest), (b_words, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && a_words.iter().zip(b_words).all(|(x, y)| u64::from_ne_bytes(*x) == u64::from_ne_bytes(*y))
        && a_rest.iter().zip(b_rest).all(|(x, y)| x == y)
}

/// Merges runs of items, one after the other and each in order, which end at `ends`: neighbours two at a time, then what comes of them, so that each item is
/// moved as often as the number of runs can be halved. Of equal heads, those of earlier runs come first.
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

/// Merges by heads into as many places as there are items. Of equal heads, those of `newer` come first.
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
