//! Finds partitions by the first eight bytes (head) of a key, for every get.
//!
//! A binary search takes some thirty dependent instructions, which delay the memory requests of the
//! next get: on some machines gets then take half as long again. So the range of the heads is cut
//! into slots of equal length, with a table of their partitions. If a slot has at most one head,
//! one comparison decides.

use std::cmp::Ordering;

/// Slots for each head. With evenly spread heads, one slot in four to eight has one.
const SLOTS_PER_HEAD: usize = 4;
const SLOTS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The only head in the slot; the maximum if it has none.
    border: u64,
    /// Partition of heads below `border`; greater ones are in the next. [`MANY`]: several heads.
    partition: u32,
}

/// Neither this nor the next number is valid.
const MANY: u32 = u32::MAX - 1;

#[derive(Debug, Default)]
pub struct PartitionIndex {
    partition_index: Vec<u64>,
    slots: Vec<Slot>,
    /// Second head, start of the first slot: the first partition begins before all keys.
    lowest: u64,
    shift: u32,
}

impl PartitionIndex {
    /// Heads must be in order.
    pub fn new(partition_index: Vec<u64>) -> PartitionIndex {
        let (Some(&lowest), Some(&highest)) = (partition_index.get(1), partition_index.last()) else {
            let slots = vec![Slot { border: u64::MAX, partition: 0 }; partition_index.len()];
            return PartitionIndex { partition_index, slots, ..PartitionIndex::default() };
        };
        let width = highest - lowest;
        let slots_max = (SLOTS_PER_HEAD * partition_index.len()).min(SLOTS_MAX).next_power_of_two();
        let shift = (u64::BITS - width.leading_zeros()).saturating_sub(slots_max.ilog2());
        let count = (width >> shift) + 1;
        let before = |slot: u64| match slot {
            slot if slot == count => partition_index.len(),
            slot => partition_index.partition_point(|&head| head < lowest + (slot << shift)),
        };
        let slot = |number: u64| {
            let (first, end) = (before(number), before(number + 1));
            match (u32::try_from(first), end - first) {
                (Ok(first @ 1..MANY), 0) => Slot { border: u64::MAX, partition: first - 1 },
                (Ok(first @ 1..MANY), 1) => Slot { border: partition_index[first as usize], partition: first - 1 },
                _ => Slot { border: u64::MAX, partition: MANY },
            }
        };
        let slots = (0..count).map(slot).collect();
        PartitionIndex { partition_index, slots, lowest, shift }
    }

    /// `None`, or an invalid number, if the table does not decide.
    #[inline(always)]
    pub fn find(&self, head: u64) -> Option<usize> {
        let last = self.slots.len().wrapping_sub(1) as u64;
        let slot = self.slots.get((head.saturating_sub(self.lowest) >> self.shift).min(last) as usize)?;
        match head.cmp(&slot.border) {
            Ordering::Equal => None,
            order => Some(slot.partition as usize + usize::from(order == Ordering::Greater)),
        }
    }

    pub fn before(&self, head: u64) -> usize {
        self.partition_index.partition_point(|&other| other < head)
    }

    pub fn ties(&self, first: usize, head: u64) -> usize {
        self.partition_index[first..].partition_point(|&other| other == head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            self.0 ^ self.0 >> 29
        }
    }

    /// Returns the number of heads that the table decided, and of all.
    fn check(partition_index: &[u64], chance: &mut Chance) -> (usize, usize) {
        let table = PartitionIndex::new(partition_index.to_vec());
        let near = partition_index.iter().flat_map(|&head| [head.wrapping_sub(1), head, head.saturating_add(1)]);
        let others = (0..200).map(|_| chance.next() >> (chance.next() % 64));
        let between = partition_index.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2);
        let (mut reported, mut all) = (0, 0);
        for head in near.chain(others).chain(between).chain([0, 1, u64::MAX]) {
            let less = partition_index.partition_point(|&other| other < head);
            assert_eq!(table.before(head), less);
            all += 1;
            if let Some(found) = table.find(head).filter(|&found| found < partition_index.len()) {
                let is_first = found == 0 && partition_index.get(1).is_none_or(|&second| head < second);
                assert!(
                    is_first || (partition_index.get(less) != Some(&head) && found + 1 == less),
                    "{head} in {partition_index:?}: {found}"
                );
                reported += 1;
            }
        }
        (reported, all)
    }

    #[test]
    fn find_agrees_with_binary_search() {
        let mut chance = Chance(7);
        check(&[], &mut chance);
        for round in 0..400u64 {
            let len = 1 + chance.next() % if round % 40 == 0 { 3000 } else { 40 };
            let shape = round % 5;
            let mut partition_index: Vec<u64> = (0..len)
                .map(|_| match shape {
                    0 => chance.next(),
                    1 => (7 << 32) | (chance.next() & 0xffff_ffff),
                    2 => (chance.next() % 3) << 40 | (chance.next() & 0xffff_ffff) >> (chance.next() % 32),
                    3 => u64::MAX - chance.next() % 100,
                    _ => chance.next() % 10,
                })
                .collect();
            partition_index.push(0);
            partition_index.sort_unstable();
            check(&partition_index, &mut chance);
        }
    }

    #[test]
    fn find_of_evenly_spread_heads_mostly_decides() {
        let mut chance = Chance(3);
        for len in [1, 2, 9, 100] {
            let mut partition_index: Vec<u64> =
                (0..len).map(|number| (number << 26) | (chance.next() % (1 << 25))).collect();
            partition_index[0] = 0;
            partition_index.sort_unstable();
            let table = PartitionIndex::new(partition_index);
            let reported =
                (0..1000).filter(|_| table.find(chance.next() % (len << 26)).is_some_and(|p| p < len as usize));
            assert!(reported.count() > 900, "{table:?}");
        }
    }
}
