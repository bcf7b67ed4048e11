//! Finds a key's place in a segment.
//!
//! Blind search finds the one candidate that the difference bits allow, without reading a key. Let
//! p be the first bit in which its key differs from the query. If the query is below the candidate,
//! its place is the nearest boundary to the left whose difference is at or before p, since all keys
//! in between share the candidate's longer prefix; if above, the nearest to the right.
//!
//! With unknown differences (base 255) the segment is bisected.

use super::bits::{self, compare_bits};
use super::format::{BASE_BISECT, MAX_DIFFERENCE, Segment, lanes_below};
use super::simd::{Simd, lanes_at_most};
use crate::base::Result;
use std::cmp::Ordering;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First entry at or above the query, the newest version of its key, or the entry count.
    pub(crate) lane: usize,
    pub(crate) exact: bool,
}

pub(crate) type Comparison = (Ordering, Option<u32>);

#[inline(always)]
pub(crate) fn find_place(
    segment: &Segment<'_>,
    simd: Simd,
    query: &[u8],
    mut compare: impl FnMut(usize) -> Result<Comparison>,
) -> Result<Place> {
    let Some(candidate) = candidate(segment, simd, query) else { return bisect(segment, &mut compare) };
    Ok(correct(segment, candidate, compare(candidate)?))
}

/// Returns the index of the only entry that may hold `query`; `None` if differences are unknown.
#[inline(always)]
pub(crate) fn candidate(segment: &Segment<'_>, simd: Simd, query: &[u8]) -> Option<usize> {
    match segment.base() {
        BASE_BISECT => None,
        base => Some(simd.blind_candidate(segment.differences(), &bits::window(query, base))),
    }
}

#[inline(always)]
pub(crate) fn correct(segment: &Segment<'_>, candidate: usize, (order, bit): Comparison) -> Place {
    let count = segment.count();
    // A bit before the base byte lies in the shared prefix: the query is before or after all keys.
    // A bit past the largest difference is past all boundaries.
    let bit = bit.unwrap_or(u32::MAX).checked_sub(8 * u32::from(segment.base())).map(|b| b.min(MAX_DIFFERENCE) as u8);
    let boundaries = match bit {
        Some(bit) => lanes_at_most(segment.differences(), bit) & lanes_below(count) & !1,
        None => 0,
    };
    let lane = match order {
        Ordering::Equal => candidate,
        // Nearest boundary at or before the candidate, or the start.
        Ordering::Less => 31 - (boundaries & lanes_below(candidate + 1) | 1).leading_zeros() as usize,
        Ordering::Greater => ((boundaries & !lanes_below(candidate + 1)).trailing_zeros() as usize).min(count),
    };
    Place { lane, exact: order == Ordering::Equal }
}

#[cold]
fn bisect(segment: &Segment<'_>, compare: &mut dyn FnMut(usize) -> Result<Comparison>) -> Result<Place> {
    // Only newest versions are compared.
    let newest = lanes_below(segment.count()) & !segment.same_key();
    let (mut low, mut high) = (0, segment.count());
    while low < high {
        let lane = 31 - (newest & lanes_below(low.midpoint(high) + 1) | 1).leading_zeros() as usize;
        match compare(lane)?.0 {
            Ordering::Equal => return Ok(Place { lane, exact: true }),
            Ordering::Less => high = lane,
            Ordering::Greater => {
                low = ((newest & !lanes_below(lane + 1)).trailing_zeros() as usize).min(segment.count())
            }
        }
    }
    Ok(Place { lane: low, exact: false })
}

#[inline(always)]
pub(crate) fn compare_counted(query: &[u8], key: &[u8]) -> Comparison {
    super::counters::count_key_comparison();
    compare_bits(query, key)
}

#[cfg(test)]
mod tests {
    use super::super::format::{Difference, Lane, encode_record, tag};
    use super::*;
    use crate::table::Position;

    fn record_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let lanes: Vec<Lane> = keys
            .iter()
            .enumerate()
            .map(|(i, key)| Lane {
                selector: 0,
                tag: tag(key),
                difference: match i.checked_sub(1).map(|b| compare_bits(key, &keys[b])) {
                    Some((Ordering::Equal, _)) => Difference::Same,
                    Some((_, Some(bit))) => Difference::Bit(bit),
                    _ => Difference::Untold,
                },
                position: Position::default(),
            })
            .collect();
        let mut record = vec![0; 128];
        encode_record(&mut record, &lanes, &[Position::default()]);
        record
    }

    fn check(mut keys: Vec<Vec<u8>>, queries: &[Vec<u8>], must_be_blind: bool) {
        keys.sort();
        keys.truncate(32);
        let record = record_of(&keys);
        let segment = Segment::new(&record, keys.len(), 1).unwrap();
        assert!(!must_be_blind || segment.base() != BASE_BISECT);
        for simd in [Simd::Portable, Simd::detect()] {
            for query in queries.iter().chain(&keys) {
                let mut comparisons = 0;
                let place = find_place(&segment, simd, query, |lane| {
                    comparisons += 1;
                    Ok(compare_bits(query, &keys[lane]))
                })
                .unwrap();
                let expected = keys.partition_point(|k| k < query);
                let exact = keys.get(expected) == Some(query);
                assert_eq!(place, Place { lane: expected, exact }, "{query:?} in {keys:?}");
                assert!(comparisons == 1 || segment.base() == BASE_BISECT);
            }
        }
    }

    struct Random(u64);

    impl Random {
        fn next(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % below
        }

        fn key(&mut self, alphabet: &[u8], longest: usize) -> Vec<u8> {
            (0..self.next(longest + 1)).map(|_| alphabet[self.next(alphabet.len())]).collect()
        }
    }

    #[test]
    fn find_place_in_many_key_shapes_matches_sorted_list() {
        let random = &mut Random(7);
        let alphabets: [&[u8]; 5] = [&[0, 1], &[0xff, 0xfe, 0], b"abc", &[0, 0x80, 0xff], b"a"];
        for round in 0..3_000 {
            let alphabet = alphabets[round % alphabets.len()];
            let longest = [3, 8, 40][round % 3];
            let prefix = random.key(b"xy\0", [0, 0, 20, 300][round % 4]);
            let mut make = |_| [prefix.clone(), random.key(alphabet, longest)].concat();
            let keys: Vec<_> = (0..1 + round % 40).map(&mut make).collect();
            let mut queries: Vec<_> = (0..20).map(&mut make).collect();
            queries.extend([Vec::new(), vec![0], vec![0xff; 400], prefix.clone(), b"x".to_vec()]);
            check(keys, &queries, false);
        }
    }

    #[test]
    fn find_place_in_random_keys_needs_no_bisection() {
        let random = &mut Random(9);
        for _ in 0..500 {
            let mut make = |_| (0..8).map(|_| random.next(256) as u8).collect::<Vec<u8>>();
            let keys: Vec<_> = (0..32).map(&mut make).map(|k| [b"tree".to_vec(), k, vec![1]].concat()).collect();
            let queries: Vec<_> = (0..20).map(&mut make).map(|k| [b"tree".to_vec(), k, vec![1]].concat()).collect();
            check(keys, &queries, true);
        }
    }
}
