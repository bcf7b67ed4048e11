//! Range tombstones: "all versions from start up to end, written before sequence, are deleted".
//!
//! A set stores disjoint fragments in key order, each with the sequence numbers of all tombstones
//! that cover it, newest first. So a lookup is one binary search, whatever the overlap.

use super::SequenceNumber;

/// Deletion of all versions of the keys in `start..end` with a sequence number below `sequence`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// The first internal key deleted.
    pub start: Vec<u8>,
    /// The first internal key not deleted. Greater than `start`.
    pub end: Vec<u8>,
    /// The commit that deleted the range.
    pub sequence: SequenceNumber,
}

/// Immutable set of range tombstones. Lookups take logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstoneSet {
    tombstones: Vec<RangeTombstone>,
    /// First key of each fragment, which ends where the next begins.
    starts: Vec<Vec<u8>>,
    /// Sequence numbers of the tombstones that cover each fragment, newest first. The
    /// last start has none.
    covers: Vec<Vec<SequenceNumber>>,
}

impl RangeTombstoneSet {
    /// Builds a set. Empty ranges are left out.
    pub fn new(mut tombstones: Vec<RangeTombstone>) -> RangeTombstoneSet {
        tombstones.retain(|t| t.start < t.end);
        tombstones.sort();
        tombstones.dedup();
        let mut starts: Vec<Vec<u8>> = tombstones.iter().flat_map(|t| [t.start.clone(), t.end.clone()]).collect();
        starts.sort();
        starts.dedup();
        let mut covers = vec![Vec::new(); starts.len()];
        for tombstone in &tombstones {
            let from = starts.partition_point(|s| *s < tombstone.start);
            let to = starts.partition_point(|s| *s < tombstone.end);
            for cover in &mut covers[from..to] {
                cover.push(tombstone.sequence);
            }
        }
        for cover in &mut covers {
            cover.sort_unstable_by(|a, b| b.cmp(a));
            cover.dedup();
        }
        RangeTombstoneSet { tombstones, starts, covers }
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    /// Iterates over the tombstones, by start.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.tombstones.iter()
    }

    /// Returns the tombstones, by start.
    pub fn into_tombstones(self) -> Vec<RangeTombstone> {
        self.tombstones
    }

    /// Returns the number of tombstones.
    pub fn len(&self) -> usize {
        self.tombstones.len()
    }

    /// Returns the sequence numbers of the tombstones that cover `key`, newest first.
    pub fn covering(&self, key: &[u8]) -> &[SequenceNumber] {
        match self.starts.partition_point(|s| s.as_slice() <= key) {
            0 => &[],
            after => &self.covers[after - 1],
        }
    }

    /// Returns the widest range around `key` that the same tombstones cover, end exclusive. `None`
    /// if none covers `key`.
    pub fn fragment(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let after = self.starts.partition_point(|s| s.as_slice() <= key);
        if after == 0 || self.covers[after - 1].is_empty() {
            return None;
        }
        Some((&self.starts[after - 1], &self.starts[after]))
    }

    /// Returns the covered fragments that overlap `start..end`: start, end, and the tombstones'
    /// sequence numbers, newest first.
    pub fn fragments_in<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a [u8], &'a [SequenceNumber])> {
        let first = self.starts.partition_point(|s| s.as_slice() <= start).saturating_sub(1);
        let fragments = self.starts[first..].windows(2).zip(&self.covers[first..]);
        fragments
            .map(|(bounds, cover)| (bounds[0].as_slice(), bounds[1].as_slice(), cover.as_slice()))
            .take_while(move |(from, _, _)| *from < end)
            .filter(move |(_, to, cover)| *to > start && !cover.is_empty())
    }

    /// Returns the sequence number of the newest tombstone over `key` at or below `snapshot`; 0 if
    /// none.
    pub fn newest_covering(&self, key: &[u8], snapshot: SequenceNumber) -> SequenceNumber {
        if self.tombstones.is_empty() {
            return 0;
        }
        self.covering(key).iter().copied().find(|&s| s <= snapshot).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tombstone(start: &str, end: &str, sequence: u64) -> RangeTombstone {
        RangeTombstone { start: start.into(), end: end.into(), sequence }
    }

    #[test]
    fn range_tombstones_overlapping_are_found_by_key_and_snapshot() {
        let set = RangeTombstoneSet::new(vec![tombstone("b", "f", 5), tombstone("d", "h", 9), tombstone("x", "x", 11)]);
        let newest = |key: &str, snapshot| set.newest_covering(key.as_bytes(), snapshot);
        assert_eq!(newest("a", 99), 0);
        assert_eq!(newest("b", 99), 5);
        assert_eq!(newest("b", 4), 0);
        assert_eq!(newest("d", 99), 9);
        assert_eq!(newest("d", 8), 5);
        assert_eq!(newest("f", 8), 0);
        assert_eq!(newest("g", 99), 9);
        assert_eq!(newest("h", 99), 0);
        assert_eq!(newest("x", 99), 0);
        assert_eq!(set.len(), 2);
        let fragments = |start: &str, end: &str| {
            let found = set.fragments_in(start.as_bytes(), end.as_bytes());
            found.map(|(from, to, _)| format!("{}{}", from.escape_ascii(), to.escape_ascii())).collect::<Vec<_>>()
        };
        assert_eq!(fragments("", "z"), ["bd", "df", "fh"]);
        assert_eq!(fragments("c", "d"), ["bd"]);
        assert_eq!(fragments("d", "f"), ["df"]);
        assert_eq!(fragments("e", "g"), ["df", "fh"]);
        assert!(fragments("h", "z").is_empty() && fragments("", "b").is_empty());
    }
}
