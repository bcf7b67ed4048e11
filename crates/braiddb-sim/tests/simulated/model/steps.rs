//! Steps and their random generators.

use crate::common::{value, writer::Way};
use braiddb_sim::model::{Bounds, Bytes};
use proptest::{collection::vec, prelude::*};
use std::ops::Bound;

/// Microseconds since 1970.
pub const START_US: u64 = 1_577_836_800_000_000;

pub const HOUR_US: u64 = 3_600_000_000;

pub const KEYS: u8 = 44;

/// Empty, zeros, the highest, many similar ones, trailing zeros, long ones.
pub fn key(number: u8) -> Bytes {
    match number % KEYS {
        0 => Vec::new(),
        n @ 1..=2 => vec![0; usize::from(n)],
        n @ 3..=4 => vec![0xff; usize::from(n) - 2],
        n @ 5..=24 => format!("k{n:02}").into_bytes(),
        n @ 25..=29 => [&b"k10"[..], &[0, 0, 0, 0, 0][..usize::from(n) - 24]].concat(),
        n @ 30..=34 => [&[b'p'; 300][..], &[n]].concat(),
        n => format!("user/{:05}/album", u32::from(n) * 7).into_bytes(),
    }
}

pub fn sized_value(size: u8, tag: u64) -> Bytes {
    value([0, 1, 8, 60, 100, 300, 700, 2500, 6000][usize::from(size) % 9], tag)
}

#[derive(Clone, Debug)]
pub enum Write {
    Put {
        tree: usize,
        key: u8,
        size: u8,
    },
    Delete {
        tree: usize,
        key: u8,
    },
    Append {
        tree: usize,
        key: u8,
        len: u8,
    },
    /// Expires in `after` hours and a half; a negative `after` is in the past.
    PutUntil {
        tree: usize,
        key: u8,
        size: u8,
        after: i8,
    },
    Stream {
        tree: usize,
        key: u8,
        size: u8,
    },
    Extend {
        tree: usize,
        key: u8,
        size: u8,
    },
    DeleteRange {
        tree: usize,
        bounds: RangeOf,
    },
    Add {
        key: u8,
        value: u8,
    },
    Remove {
        key: u8,
        value: u8,
    },
}

#[derive(Clone, Debug)]
pub enum Step {
    Write(Write),
    RemoveAll {
        key: u8,
    },
    Batch {
        writes: Vec<Write>,
        sync: bool,
        way: Way,
    },
    Conditional {
        tree: usize,
        key: u8,
        size: u8,
        what: u8,
    },
    Pass {
        hours: u8,
    },
    Load {
        tree: usize,
        keys: Vec<u8>,
        size: u8,
    },
    /// Many consecutive keys, to fill memtables and split partitions.
    Fill {
        tree: usize,
        first: u16,
        count: u8,
        size: u8,
    },
    Get {
        tree: usize,
        keys: Vec<u8>,
    },
    Scan {
        tree: usize,
        bounds: RangeOf,
        directions: u64,
    },
    Prefix {
        tree: usize,
        key: u8,
        len: u8,
        directions: u64,
    },
    Ends {
        tree: usize,
    },
    /// An iterator that stays open.
    Hold {
        tree: usize,
        bounds: RangeOf,
    },
    Advance {
        which: u8,
        count: u8,
        directions: u64,
    },
    Snapshot,
    ReadSnapshot {
        which: u8,
        tree: usize,
        bounds: RangeOf,
        directions: u64,
    },
    DropSnapshot {
        which: u8,
    },
    Multi {
        bounds: RangeOf,
        key: u8,
        directions: u64,
    },
    /// Many pairs of one key, to fill parts of memtables, runs and views.
    MultiFill {
        key: u8,
        first: u16,
        count: u8,
    },
    MultiSeek {
        key: u8,
        value: u8,
        steps: u64,
    },
    MultiSnapshot,
    ReadMultiSnapshot {
        which: u8,
        key: u8,
    },
    MultiTransaction {
        pairs: Vec<(u8, u8, u8)>,
        is_exclusive: bool,
        is_committed: bool,
    },
    Flush,
    Compact,
    Sync,
    DropTree {
        tree: usize,
    },
    Reopen {
        close: bool,
    },
    Verify,
    Crash {
        policy: u64,
    },
    Numbered {
        writes: Vec<Write>,
        durability: u8,
    },
    /// Flushes up to the cursor of `back` commits ago.
    FlushTo {
        back: u8,
    },
    Watch(WatchStep),
    Copy(CopyStep),
    Range(RangeStep),
    Follow {
        fresh: bool,
    },
    ReadFollower,
}

#[derive(Clone, Debug)]
pub enum WatchStep {
    /// Begins a watch of all trees, of one, or of its keys with a prefix.
    Begin {
        filter: u8,
        tree: usize,
        prefix: (u8, u8),
        unsynced: bool,
    },
    Read {
        which: u8,
        most: u8,
    },
    Resume {
        which: u8,
    },
    End {
        which: u8,
    },
}

#[derive(Clone, Debug)]
pub enum CopyStep {
    Backup,
    Restore {
        which: u8,
    },
    RestoreTo {
        which: u16,
    },
    Checkpoint,
    OpenCheckpoint {
        which: u8,
    },
    /// Loads the dump, too, first with a flipped bit.
    Dump {
        is_packed: bool,
        flipped: u32,
    },
}

#[derive(Clone, Debug)]
pub enum RangeStep {
    Estimate { tree: usize, bounds: RangeOf, parts: u8 },
    Clip { tree: usize, bounds: RangeOf },
    Export { tree: usize, bounds: RangeOf },
    Ingest { tree: usize, which: u8 },
    Build { tree: usize, keys: Vec<u8>, size: u8, tables: u8 },
}

/// Bounds by key number; 0: included, 1: excluded, 2: unbounded.
#[derive(Clone, Debug)]
pub struct RangeOf {
    pub from: (u8, u8),
    pub to: (u8, u8),
}

impl RangeOf {
    pub fn bounds(&self) -> Bounds {
        let bound = |(kind, number)| match kind {
            0 => Bound::Included(key(number)),
            1 => Bound::Excluded(key(number)),
            _ => Bound::Unbounded,
        };
        (bound(self.from), bound(self.to))
    }
}

pub fn any_range() -> impl Strategy<Value = RangeOf> {
    ((0..3_u8, 0..KEYS), (0..3_u8, 0..KEYS)).prop_map(|(from, to)| RangeOf { from, to })
}

pub fn any_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        6 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Put { tree, key, size }),
        2 => (0..2_usize, 0..KEYS).prop_map(|(tree, key)| Write::Delete { tree, key }),
        2 => (0..2_usize, 0..KEYS, 0..90_u8).prop_map(|(tree, key, len)| Write::Append { tree, key, len }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8, -1..5_i8)
            .prop_map(|(tree, key, size, after)| Write::PutUntil { tree, key, size, after }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Stream { tree, key, size }),
        3 => (0..2_usize, 0..KEYS, 0..9_u8).prop_map(|(tree, key, size)| Write::Extend { tree, key, size }),
        1 => (0..2_usize, any_range()).prop_map(|(tree, bounds)| Write::DeleteRange { tree, bounds }),
        1 => (0..8_u8, 0..6_u8).prop_map(|(key, value)| Write::Add { key, value }),
        1 => (0..8_u8, 0..6_u8).prop_map(|(key, value)| Write::Remove { key, value }),
    ]
}

pub fn any_way() -> impl Strategy<Value = Way> {
    prop_oneof![2 => Just(Way::Batch), 2 => Just(Way::Transaction), 1 => Just(Way::Exclusive)]
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let tree = 0..2_usize;
    prop_oneof![
        10 => any_write().prop_map(Step::Write),
        1 => (0..8_u8).prop_map(|key| Step::RemoveAll { key }),
        4 => (vec(any_write(), 1..12), any::<bool>(), any_way())
            .prop_map(|(writes, sync, way)| Step::Batch { writes, sync, way }),
        3 => (tree.clone(), 0..KEYS, 0..9_u8, 0..6_u8)
            .prop_map(|(tree, key, size, what)| Step::Conditional { tree, key, size, what }),
        2 => (1..40_u8).prop_map(|hours| Step::Pass { hours: if hours > 30 { hours } else { 1 + hours % 3 } }),
        2 => (tree.clone(), 0..300_u16, 1..60_u8, 0..9_u8)
            .prop_map(|(tree, first, count, size)| Step::Fill { tree, first, count, size }),
        2 => (tree.clone(), vec(0..KEYS, 1..30), 0..9_u8).prop_map(|(tree, keys, size)| Step::Load { tree, keys, size }),
        3 => (tree.clone(), vec(0..KEYS, 1..20)).prop_map(|(tree, keys)| Step::Get { tree, keys }),
        4 => (tree.clone(), any_range(), any::<u64>())
            .prop_map(|(tree, bounds, directions)| Step::Scan { tree, bounds, directions }),
        2 => (tree.clone(), 0..KEYS, 0..8_u8, any::<u64>())
            .prop_map(|(tree, key, len, directions)| Step::Prefix { tree, key, len, directions }),
        1 => tree.clone().prop_map(|tree| Step::Ends { tree }),
        1 => (tree.clone(), any_range()).prop_map(|(tree, bounds)| Step::Hold { tree, bounds }),
        2 => (any::<u8>(), 1..20_u8, any::<u64>())
            .prop_map(|(which, count, directions)| Step::Advance { which, count, directions }),
        2 => Just(Step::Snapshot),
        3 => (any::<u8>(), tree.clone(), any_range(), any::<u64>())
            .prop_map(|(which, tree, bounds, directions)| Step::ReadSnapshot { which, tree, bounds, directions }),
        1 => any::<u8>().prop_map(|which| Step::DropSnapshot { which }),
        1 => (any_range(), 0..8_u8, any::<u64>())
            .prop_map(|(bounds, key, directions)| Step::Multi { bounds, key, directions }),
        3 => any_multi_step(),
        3 => Just(Step::Flush),
        1 => Just(Step::Compact),
        1 => Just(Step::Sync),
        1 => tree.prop_map(|tree| Step::DropTree { tree }),
        2 => any::<bool>().prop_map(|close| Step::Reopen { close }),
        1 => Just(Step::Verify),
        1 => any::<u64>().prop_map(|policy| Step::Crash { policy }),
        3 => (vec(any_write(), 1..6), 0..4_u8)
            .prop_map(|(writes, durability)| Step::Numbered { writes, durability }),
        1 => (0..4_u8).prop_map(|back| Step::FlushTo { back }),
        5 => any_watch_step().prop_map(Step::Watch),
        3 => any_copy_step().prop_map(Step::Copy),
        5 => any_range_step().prop_map(Step::Range),
        3 => (0..4_u8).prop_map(|fresh| Step::Follow { fresh: fresh == 0 }),
        1 => Just(Step::ReadFollower),
    ]
}

pub fn any_watch_step() -> impl Strategy<Value = WatchStep> {
    prop_oneof![
        3 => (0..5_u8, 0..2_usize, (0..KEYS, 0..6_u8), any::<bool>())
            .prop_map(|(filter, tree, prefix, unsynced)| WatchStep::Begin { filter, tree, prefix, unsynced }),
        6 => (any::<u8>(), 1..40_u8).prop_map(|(which, most)| WatchStep::Read { which, most }),
        3 => any::<u8>().prop_map(|which| WatchStep::Resume { which }),
        1 => any::<u8>().prop_map(|which| WatchStep::End { which }),
    ]
}

pub fn any_copy_step() -> impl Strategy<Value = CopyStep> {
    prop_oneof![
        2 => Just(CopyStep::Backup),
        1 => any::<u8>().prop_map(|which| CopyStep::Restore { which }),
        2 => any::<u16>().prop_map(|which| CopyStep::RestoreTo { which }),
        1 => Just(CopyStep::Checkpoint),
        1 => any::<u8>().prop_map(|which| CopyStep::OpenCheckpoint { which }),
        2 => (any::<bool>(), any::<u32>()).prop_map(|(is_packed, flipped)| CopyStep::Dump { is_packed, flipped }),
    ]
}

pub fn any_range_step() -> impl Strategy<Value = RangeStep> {
    let tree = 0..2_usize;
    prop_oneof![
        3 => (tree.clone(), any_range(), 1..9_u8)
            .prop_map(|(tree, bounds, parts)| RangeStep::Estimate { tree, bounds, parts }),
        1 => (tree.clone(), any_range()).prop_map(|(tree, bounds)| RangeStep::Clip { tree, bounds }),
        2 => (tree.clone(), any_range()).prop_map(|(tree, bounds)| RangeStep::Export { tree, bounds }),
        2 => (tree.clone(), any::<u8>()).prop_map(|(tree, which)| RangeStep::Ingest { tree, which }),
        3 => (tree, vec(0..KEYS, 1..30), 0..9_u8, 1..4_u8)
            .prop_map(|(tree, keys, size, tables)| RangeStep::Build { tree, keys, size, tables }),
    ]
}

pub fn any_multi_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..8_u8, 0..400_u16, any::<u8>()).prop_map(|(key, first, count)| Step::MultiFill { key, first, count }),
        3 => (0..8_u8, 0..KEYS, any::<u64>()).prop_map(|(key, value, steps)| Step::MultiSeek { key, value, steps }),
        1 => Just(Step::MultiSnapshot),
        2 => (any::<u8>(), 0..8_u8).prop_map(|(which, key)| Step::ReadMultiSnapshot { which, key }),
        2 => (vec((0..8_u8, 0..8_u8, 0..6_u8), 1..12), any::<bool>(), any::<bool>()).prop_map(
            |(pairs, is_exclusive, is_committed)| Step::MultiTransaction { pairs, is_exclusive, is_committed }
        ),
    ]
}
