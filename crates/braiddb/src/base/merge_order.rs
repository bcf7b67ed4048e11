//! The order of the sources of a merge.
//!
//! Sources stand in the order of what they are at, each with the first bytes of its key as a number: few comparisons
//! look at the keys themselves. A source that has moved sinks to its new place, which for the dozen sources of a merge is
//! faster than a tree: steps are short, and all but the last go the same way. Where there are many, its place is searched for.

use std::cmp::Ordering;

/// With more sources than that, the place of one is searched for by halves.
const STEPS_MAX: usize = 24;

/// Which source comes next, and after it. A source is known by its index.
#[derive(Debug, Default)]
pub struct MergeOrder {
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The [`key_head`] of the key that the source is at.
    head: u128,
    source: usize,
}

impl MergeOrder {
    /// The source that comes next; `None` if there is none left.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.places.first().map(|place| place.source)
    }

    /// Adds a source that is at `key`. `compare` tells how what two sources are at compares; it is asked where the first
    /// bytes of the keys are equal.
    pub fn add(&mut self, source: usize, key: &[u8], compare: impl Fn(usize, usize) -> Ordering) {
        self.places.insert(0, Place { head: key_head(key), source });
        self.sink(compare);
    }

    /// The first source has gone on to `key`.
    #[inline]
    pub fn move_first(&mut self, key: &[u8], compare: impl Fn(usize, usize) -> Ordering) {
        self.places[0].head = key_head(key);
        self.sink(compare);
    }

    /// The first source has nothing left.
    pub fn remove_first(&mut self) {
        self.places.remove(0);
    }

    #[inline]
    fn sink(&mut self, compare: impl Fn(usize, usize) -> Ordering) {
        let (&first, rest) = self.places.split_first().expect("called with a first source");
        let is_in_front = |next: &Place| {
            first.head < next.head || (first.head == next.head && compare(first.source, next.source).is_lt())
        };
        let at = match rest.len() {
            0..=STEPS_MAX => rest.iter().position(is_in_front).unwrap_or(rest.len()),
            _ => rest.partition_point(|next| !is_in_front(next)),
        };
        self.places.copy_within(1..=at, 0);
        self.places[at] = first;
    }
}

/// The first bytes of a key as a number of the same order, zeros after its end.
#[inline]
pub fn key_head(key: &[u8]) -> u128 {
    if let Some(first) = key.first_chunk() {
        return u128::from_be_bytes(*first);
    }
    let mut bytes = [0; 16];
    bytes[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_ordered_as_keys_are_where_they_differ() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefghijklmnop", b"abcdefghijklmnopq"];
        for pair in keys.windows(2) {
            assert!(key_head(pair[0]) <= key_head(pair[1]), "{pair:?}");
        }
        assert!(key_head(b"ab") < key_head(b"b"));
        assert_eq!(key_head(b"abcdefghijklmnop"), key_head(b"abcdefghijklmnopq"), "told apart by the keys alone");
    }

    #[test]
    fn sources_come_in_order_until_they_are_all_used_up() {
        // Long keys share their first bytes, so that the keys themselves are compared as well.
        let lists: [&[&[u8]]; 4] = [
            &[b"a", b"c", b"prefix of sixteen bytes, 1", b"z"],
            &[],
            &[b"b", b"prefix of sixteen bytes, 0", b"prefix of sixteen bytes, 2"],
            &[b"", b"prefix of sixteen bytes, 3"],
        ];
        let mut at = [0; 4];
        let mut order = MergeOrder::default();
        for (source, list) in lists.iter().enumerate() {
            if let Some(key) = list.first() {
                order.add(source, key, |a, b| lists[a][at[a]].cmp(lists[b][at[b]]));
            }
        }
        let mut merged = Vec::new();
        while let Some(source) = order.first() {
            merged.push(lists[source][at[source]]);
            at[source] += 1;
            match lists[source].get(at[source]) {
                Some(key) => order.move_first(key, |a, b| lists[a][at[a]].cmp(lists[b][at[b]])),
                None => order.remove_first(),
            }
        }
        let mut expected = lists.concat();
        expected.sort_unstable();
        assert_eq!(merged, expected);
    }
}
