//! Range tombstones: "all keys from start up to end, written before sequence, are deleted".
//!
//! A set keeps them as disjoint fragments in key order. Each fragment lists the sequence numbers of all tombstones
//! that cover it, newest first, so that a lookup is one binary search whatever the overlap.

use super::SequenceNumber;

/// Deletes every version of every key in `start..end` whose sequence number is less than `sequence`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// The first internal key deleted.
    pub start: Vec<u8>,
    /// The first internal key not deleted any more. Greater than `start`.
    pub end: Vec<u8>,
    /// The commit that deleted.
    pub sequence: SequenceNumber,
}

/// An immutable set of range tombstones that answers "what covers this key?" in logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct RangeTombstoneSet {
    tombstones: Vec<RangeTombstone>,
    /// The first key of each fragment; a fragment ends where the next begins. The last has no sequences.
    starts: Vec<Vec<u8>>,
    /// What covers each fragment, newest first.
    covers: Vec<Vec<SequenceNumber>>,
}

impl RangeTombstoneSet {
    /// A set of these tombstones. Empty ranges are left out.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tombstones.is_empty()
    }

    /// All of them, by start.
    pub fn iter(&self) -> impl Iterator<Item = &RangeTombstone> {
        self.tombstones.iter()
    }

    /// All of them, by start, given away.
    pub fn into_tombstones(self) -> Vec<RangeTombstone> {
        self.tombstones
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tombstones.len()
    }

    /// The sequence numbers of the tombstones that cover `key`, newest first.
    pub fn covering(&self, key: &[u8]) -> &[SequenceNumber] {
        match self.starts.partition_point(|s| s.as_slice() <= key) {
            0 => &[],
            after => &self.covers[after - 1],
        }
    }

    /// The widest range around `key` in which every key is covered by the same tombstones: start, and end (exclusive).
    /// `None` if no tombstone covers `key`.
    pub fn fragment(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let after = self.starts.partition_point(|s| s.as_slice() <= key);
        if after == 0 || self.covers[after - 1].is_empty() {
            return None;
        }
        Some((&self.starts[after - 1], &self.starts[after]))
    }

    /// The fragments that meet `start..end`, in order: where each begins and ends, and what covers it, newest first.
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

    /// The newest tombstone at or below `snapshot` that covers `key`; 0 if there is none.
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
    fn overlapping_tombstones_are_found_by_key_and_snapshot() {
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
