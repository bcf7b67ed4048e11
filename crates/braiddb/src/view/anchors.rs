//! Finds the segment of a key: a static search tree over the segments' separators.
//!
//! Separators are stored without their common prefix. Their next eight bytes, as a big-endian
//! number, are their **heads**, kept in nodes of 16. The leaves hold all heads in order; each level
//! above has the first head of every node below. A search counts in each node the heads at or below
//! the query's with vector instructions: two cache lines a level, no data-dependent branch.
//!
//! A node with equal heads (interleaved trees, long shared prefixes) also strips its own common
//! prefix (`skips`). Heads that are equal even then are bisected by whole separators.
//!
//! The first anchor covers everything below the second and has no separator.
//!
//! INVARIANT of a search: in each visited node, the query is at or above the first anchor and below
//! the next node's first anchor.

use super::bits::{common_prefix_len, head};
use super::simd::{NODE_HEADS, Node, Simd, Task};
use crate::cache::prefetch;
use std::cmp::Ordering;

#[derive(Debug)]
pub(crate) struct Anchors {
    simd: Simd,
    prefix: Vec<u8>,
    /// Its first eight bytes as a number, and a mask of the valid bits.
    prefix_head: u64,
    prefix_mask: u64,
    /// Separators without `prefix`, concatenated; anchor i ends at `ends[i]`.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    nodes: Vec<Node>,
    /// Bytes after `prefix` where each node's heads begin; empty if all are zero.
    skips: Vec<u32>,
    /// Anchors per head.
    stride: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Leaf(u32);

#[derive(Debug, Default)]
pub(crate) struct AnchorsBuilder {
    prefix: Vec<u8>,
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl AnchorsBuilder {
    /// All separators but the first start with `prefix`.
    pub(crate) fn new(prefix: &[u8]) -> AnchorsBuilder {
        AnchorsBuilder { prefix: prefix.to_vec(), ..AnchorsBuilder::default() }
    }

    /// `suffix` is empty for the first separator. `None` if out of order or too many.
    pub(crate) fn push(&mut self, suffix: &[u8]) -> Option<()> {
        let in_order = match self.ends.len() {
            0 => suffix.is_empty(),
            1 => !suffix.is_empty() || !self.prefix.is_empty(),
            n => suffix > &self.bytes[self.ends[n - 2] as usize..],
        };
        if !in_order {
            return None;
        }
        self.bytes.extend_from_slice(suffix);
        self.ends.push(u32::try_from(self.bytes.len()).ok()?);
        Some(())
    }

    pub(crate) fn finish(mut self, simd: Simd) -> Anchors {
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        let mut anchors = Anchors {
            simd,
            prefix_head: head(&self.prefix, 0),
            prefix_mask: u64::MAX.checked_shl(64 - 8 * self.prefix.len().min(8) as u32).unwrap_or(0),
            prefix: self.prefix,
            bytes: self.bytes,
            ends: self.ends,
            levels: Vec::new(),
        };
        let mut stride = 1;
        while anchors.len() > 0 {
            let level = anchors.build_level(stride);
            let is_root = level.nodes.len() == 1;
            anchors.levels.push(level);
            if is_root {
                break;
            }
            stride *= NODE_HEADS;
        }
        anchors.levels.reverse();
        anchors
    }
}

impl Anchors {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        let level_bytes = |level: &Level| std::mem::size_of_val(&level.nodes[..]) + level.skips.len() * 4;
        self.prefix.len() + self.bytes.len() + self.ends.len() * 4 + self.levels.iter().map(level_bytes).sum::<usize>()
    }

    #[inline]
    fn suffix(&self, anchor: usize) -> &[u8] {
        let from = if anchor == 0 { 0 } else { self.ends[anchor - 1] as usize };
        &self.bytes[from..self.ends[anchor] as usize]
    }

    pub(crate) fn separator(&self, anchor: usize) -> Vec<u8> {
        if anchor == 0 {
            return Vec::new();
        }
        [&self.prefix, self.suffix(anchor)].concat()
    }

    pub(crate) fn compare(&self, anchor: usize, key: &[u8]) -> Ordering {
        if anchor == 0 {
            return if key.is_empty() { Ordering::Equal } else { Ordering::Less };
        }
        let shared = self.prefix.len().min(key.len());
        self.prefix[..shared].cmp(&key[..shared]).then_with(|| {
            if shared < self.prefix.len() { Ordering::Greater } else { self.suffix(anchor).cmp(&key[shared..]) }
        })
    }

    /// Returns the last anchor at or before `key`. Precondition: there is an anchor.
    pub(crate) fn find(&self, key: &[u8]) -> usize {
        self.simd.run(Find { anchors: self, key })
    }

    #[inline(always)]
    pub(crate) fn find_with(&self, simd: Simd, key: &[u8]) -> usize {
        self.descend(simd, key, 0, &self.levels)
    }

    /// First half of [`Anchors::find`]: searches all levels but the last and prefetches its node.
    #[inline(always)]
    pub(crate) fn find_leaf(&self, simd: Simd, key: &[u8]) -> Leaf {
        let Some((last, upper)) = self.levels.split_last() else { return Leaf::default() };
        let leaf = self.descend(simd, key, 0, upper);
        if let Some(node) = last.nodes.get(leaf) {
            prefetch(node);
        }
        Leaf(leaf as u32)
    }

    #[inline(always)]
    pub(crate) fn find_in_leaf(&self, simd: Simd, key: &[u8], leaf: Leaf) -> usize {
        let last = self.levels.len().saturating_sub(1);
        self.descend(simd, key, leaf.0 as usize, &self.levels[last..])
    }

    #[inline(always)]
    fn descend(&self, simd: Simd, key: &[u8], mut node: usize, levels: &[Level]) -> usize {
        let Some(rest) = self.strip_prefix(key) else {
            // Before the second anchor, or after all, regardless of nodes.
            let Some(last) = levels.last() else { return node };
            let heads = self.len().div_ceil(last.stride);
            return if key < self.prefix.as_slice() { 0 } else { heads - 1 };
        };
        let unskipped = as_signed(head(rest, 0));
        for level in levels {
            let lane = match level.skips.get(node) {
                None | Some(0) => self.find_in_node(simd, level, node, rest, unskipped),
                Some(&skip) => self.find_past_prefix(level, node, rest, skip as usize),
            };
            node = node * NODE_HEADS + lane;
        }
        node
    }

    #[inline(always)]
    fn strip_prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let rest = key.get(self.prefix.len()..)?;
        let is_same = if self.prefix.len() <= 8 {
            (head(key, 0) ^ self.prefix_head) & self.prefix_mask == 0
        } else {
            key.starts_with(&self.prefix)
        };
        is_same.then_some(rest)
    }

    #[cold]
    fn find_past_prefix(&self, level: &Level, node: usize, rest: &[u8], skip: usize) -> usize {
        let (from, to) = self.anchors_of(level, node);
        let shared = &self.suffix((to - 1) * level.stride)[..skip];
        if rest.starts_with(shared) {
            return self.find_in_node(self.simd, level, node, rest, as_signed(head(rest, skip)));
        }
        if rest < shared { 0 } else { to - from - 1 }
    }

    #[inline(always)]
    fn find_in_node(&self, simd: Simd, level: &Level, node: usize, rest: &[u8], head: i64) -> usize {
        let heads = &level.nodes[node];
        let last = simd.rank_in_node(heads, head).saturating_sub(1) % NODE_HEADS;
        if heads.0[last] == head {
            return self.resolve_tie(level, node, rest, head);
        }
        last
    }

    #[cold]
    fn resolve_tie(&self, level: &Level, node: usize, rest: &[u8], head: i64) -> usize {
        let (from, to) = self.anchors_of(level, node);
        // Unused heads are the maximum number, which can be the query's too.
        let heads = &level.nodes[node].0[..to - from];
        let (mut low, mut high) = (heads.partition_point(|&h| h < head), heads.partition_point(|&h| h <= head));
        while low < high {
            let middle = low.midpoint(high);
            let anchor = (from + middle) * level.stride;
            if anchor == 0 || self.suffix(anchor) <= rest { low = middle + 1 } else { high = middle }
        }
        low.saturating_sub(1)
    }

    fn anchors_of(&self, level: &Level, node: usize) -> (usize, usize) {
        let heads = self.len().div_ceil(level.stride);
        (node * NODE_HEADS, heads.min((node + 1) * NODE_HEADS))
    }

    fn build_level(&self, stride: usize) -> Level {
        let heads = self.len().div_ceil(stride);
        let mut level = Level { nodes: Vec::with_capacity(heads.div_ceil(NODE_HEADS)), skips: Vec::new(), stride };
        for node in 0..heads.div_ceil(NODE_HEADS) {
            let (from, to) = (node * NODE_HEADS, heads.min((node + 1) * NODE_HEADS));
            let mut filled = self.fill_node(from, to, stride, 0);
            if (from.max(1)..to.saturating_sub(1)).any(|i| filled.0[i - from] == filled.0[i - from + 1]) {
                let (first, last) = (self.suffix(from.max(1) * stride), self.suffix((to - 1) * stride));
                let skip = common_prefix_len(first, last);
                if skip > 0 {
                    filled = self.fill_node(from, to, stride, skip);
                    level.skips.resize(node + 1, 0);
                    level.skips[node] = skip as u32;
                }
            }
            level.nodes.push(filled);
        }
        level
    }

    fn fill_node(&self, from: usize, to: usize, stride: usize, skip: usize) -> Node {
        let mut node = Node([i64::MAX; NODE_HEADS]);
        for i in from..to {
            let anchor = i * stride;
            node.0[i - from] = if anchor == 0 { i64::MIN } else { as_signed(head(self.suffix(anchor), skip)) };
        }
        node
    }
}

struct Find<'a> {
    anchors: &'a Anchors,
    key: &'a [u8],
}

impl Task for Find<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self, simd: Simd) -> usize {
        self.anchors.find_with(simd, self.key)
    }
}

#[inline]
fn as_signed(head: u64) -> i64 {
    (head ^ 1 << 63) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(simd: Simd, separators: &[Vec<u8>]) -> Anchors {
        let (first, last) = (separators.first(), separators.last());
        let prefix = first.zip(last).map_or(0, |(a, b)| common_prefix_len(a, b));
        let mut builder = AnchorsBuilder::new(separators.first().map_or(&[], |s| &s[..prefix]));
        builder.push(b"").unwrap();
        for separator in separators {
            builder.push(&separator[prefix..]).unwrap();
        }
        builder.finish(simd)
    }

    fn check(mut separators: Vec<Vec<u8>>, queries: &[Vec<u8>]) {
        separators.sort();
        separators.dedup();
        separators.retain(|s| !s.is_empty());
        for simd in [Simd::Portable, Simd::detect()] {
            let anchors = build(simd, &separators);
            assert_eq!(anchors.len(), separators.len() + 1);
            for query in queries.iter().chain(&separators) {
                let expected = separators.partition_point(|s| s <= query);
                assert_eq!(anchors.find(query), expected, "{query:?}");
                let leaf = anchors.find_leaf(simd, query);
                assert_eq!(anchors.find_in_leaf(simd, query, leaf), expected, "{query:?}");
                for anchor in [1, expected, expected + 1] {
                    if anchor > 0 && anchor < anchors.len() {
                        assert_eq!(anchors.compare(anchor, query), separators[anchor - 1].cmp(query));
                        assert_eq!(anchors.separator(anchor), separators[anchor - 1]);
                    }
                }
            }
        }
    }

    fn spread(i: u64) -> Vec<u8> {
        i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec()
    }

    #[test]
    fn anchors_of_spread_keys_find_segment() {
        for count in [0, 1, 2, 15, 16, 17, 255, 256, 257, 5000] {
            check((0..count).map(spread).collect(), &(10_000..11_000).map(spread).collect::<Vec<_>>());
        }
    }

    #[test]
    fn anchors_with_equal_heads_find_segment() {
        let mut separators = Vec::new();
        for tree in 0..3u32 {
            for i in 0..700 {
                separators.push(
                    [&tree.to_be_bytes()[..], format!("a long prefix shared by all/item{i:06}").as_bytes()].concat(),
                );
            }
        }
        let mut queries: Vec<Vec<u8>> = separators.iter().map(|s| [s.as_slice(), b"x"].concat()).collect();
        queries.extend(separators.iter().map(|s| s[..s.len() - 3].to_vec()));
        queries.extend([0u32, 1, 2, 3, 9].map(|tree| tree.to_be_bytes().to_vec()));
        queries.extend([0u32, 1, 2, 3].map(|tree| [&tree.to_be_bytes()[..], b"b"].concat()));
        check(separators, &queries);
    }

    #[test]
    fn anchors_with_repeated_bytes_find_segment() {
        let mut separators = Vec::new();
        for length in 1..40 {
            for byte in [0, 1, 0xff] {
                separators.push(vec![byte; length]);
                separators.push([&[7; 9][..], &vec![byte; length]].concat());
            }
        }
        let mut queries = separators.clone();
        queries.push(Vec::new());
        queries.push(vec![0xff; 300]);
        queries.extend(separators.iter().map(|s| [s.as_slice(), &[0]].concat()));
        check(separators, &queries);
    }

    #[test]
    fn anchors_with_separators_out_of_order_are_refused() {
        assert!(AnchorsBuilder::new(b"").push(b"x").is_none());
        let mut builder = AnchorsBuilder::new(b"");
        builder.push(b"").unwrap();
        assert!(builder.push(b"").is_none());
        builder.push(b"bcd").unwrap();
        assert!(builder.push(b"bcd").is_none());
        assert!(builder.push(b"bcc").is_none());
        builder.push(b"bce").unwrap();
        let mut builder = AnchorsBuilder::new(b"p");
        builder.push(b"").unwrap();
        builder.push(b"").unwrap();
        assert!(builder.push(b"").is_none());
    }
}
