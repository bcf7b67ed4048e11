//! Order of the sources of a merge, by their current keys.
//!
//! Each source is stored with its key's first 16 bytes as a number, so few comparisons read keys. A
//! source that has advanced moves down by linear search: faster than a heap for about a dozen
//! sources, since steps are cheap and well predicted. For many sources the search is binary.

use std::cmp::Ordering;

/// Number of sources above which the search is binary.
const STEPS_MAX: usize = 24;

/// Sources, by index, in the order of their current keys.
#[derive(Debug, Default)]
pub struct MergeOrder {
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// [`key_head`] of the source's current key.
    head: u128,
    source: usize,
}

impl MergeOrder {
    /// Returns the next source; `None` if all have ended.
    #[inline]
    pub fn first(&self) -> Option<usize> {
        self.places.first().map(|place| place.source)
    }

    /// Adds a source at `key`. `compare` compares the current keys of two sources with equal heads.
    pub fn add(&mut self, source: usize, key: &[u8], compare: impl Fn(usize, usize) -> Ordering) {
        self.places.insert(0, Place { head: key_head(key), source });
        self.sink(compare);
    }

    /// Reports that the first source has advanced to `key`.
    #[inline]
    pub fn move_first(&mut self, key: &[u8], compare: impl Fn(usize, usize) -> Ordering) {
        self.places[0].head = key_head(key);
        self.sink(compare);
    }

    /// Removes the first source, which has ended.
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

/// Returns the first 16 bytes of a key as a number, padded with zeros.
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
    fn key_heads_that_differ_order_as_keys() {
        let keys: [&[u8]; 7] = [b"", b"\0", b"a", b"a\0", b"ab", b"abcdefghijklmnop", b"abcdefghijklmnopq"];
        for pair in keys.windows(2) {
            assert!(key_head(pair[0]) <= key_head(pair[1]), "{pair:?}");
        }
        assert!(key_head(b"ab") < key_head(b"b"));
        assert_eq!(key_head(b"abcdefghijklmnop"), key_head(b"abcdefghijklmnopq"), "only the keys differ");
    }

    #[test]
    fn merge_order_yields_keys_of_all_sources_in_order() {
        // Long keys share their heads, so the keys themselves are compared too.
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
