//! Sets of keys as ranges.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
};

/// Ranges of internal keys, start inclusive, end exclusive: disjoint and in order; adjacent ones
/// are merged.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    ends: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Intervals {
    /// Adds a range. O(log n), plus O(log n) for each range that it absorbs.
    pub fn add(&mut self, mut start: Vec<u8>, mut end: Vec<u8>) {
        if start >= end {
            return;
        }
        if let Some((before, reach)) = self.ends.range::<[u8], _>((Unbounded, Included(start.as_slice()))).next_back()
            && *reach >= start
        {
            if *reach >= end {
                return;
            }
            start.clone_from(before);
        }
        while let Some((next, reach)) = self.ends.range::<[u8], _>((Included(start.as_slice()), Unbounded)).next()
            && *next <= end
        {
            let (next, reach) = (next.clone(), reach.clone());
            self.ends.remove(&next);
            self.bytes -= next.len() + reach.len();
            end = end.max(reach);
        }
        self.bytes += start.len() + end.len();
        self.ends.insert(start, end);
    }

    pub fn covering(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        if self.ends.is_empty() {
            return None;
        }
        let (start, end) = self.ends.range::<[u8], _>((Unbounded, Included(key))).next_back()?;
        (key < end.as_slice()).then_some((start, end))
    }

    pub fn meets(&self, start: &[u8], end: &[u8]) -> bool {
        if start >= end || self.ends.is_empty() {
            return false;
        }
        self.covering(start).is_some() || self.ends.range::<[u8], _>((Excluded(start), Excluded(end))).next().is_some()
    }

    pub fn meeting<'a>(&'a self, start: &'a [u8], end: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let first = self.covering(start).map_or(start, |(first, _)| first);
        let from_first = self.ends.range::<[u8], _>((Included(first), Unbounded));
        from_first.map(|(from, to)| (from.as_slice(), to.as_slice())).take_while(move |(from, _)| *from < end)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ends.iter().map(|(start, end)| (start.as_slice(), end.as_slice()))
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes
    }
}
