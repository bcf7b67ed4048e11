//! Tests of search, order, filter and arena.

use super::{
    super::{
        arena::{Arena, Kind},
        chunk_pool::ChunkPool,
        entry::EntryPtr,
        filter::Filter,
        node::{HeadChoice, Inner, Node, NodePtr},
        search::{self, Heads, NODE_KEYS, head},
    },
    Chance, mix,
};
use crate::base::{EntryKind, EntryRef};
use std::{
    alloc::Layout,
    array,
    cell::Cell,
    ptr::NonNull,
    sync::{Arc, atomic::AtomicI64},
};

#[test]
fn heads_order_as_their_bytes() {
    let mut chance = Chance(1);
    for _ in 0..5000 {
        let mut key = || -> Vec<u8> {
            (0..chance.below(12)).map(|_| [0, 1, 0x7f, 0x80, 0xff][chance.below(5) as usize]).collect()
        };
        let (a, b) = (key(), key());
        if head(&a, 0) < head(&b, 0) {
            assert!(a < b, "{a:?} {b:?}");
        }
        assert_eq!(head(&a, 2), head(a.get(2..).unwrap_or_default(), 0));
    }
    assert_eq!(head(b"", 0), i64::MIN);
    assert_eq!(head(&[0xff; 9], 1), i64::MAX);
}

#[test]
fn vector_search_equals_portable_search() {
    let mut chance = Chance(2);
    for round in 0..4000 {
        let mut number = || match round % 3 {
            0 => chance.below(4) as i64 - 2,
            1 => chance.next() as i64,
            _ => [i64::MIN, -1, 0, 1, i64::MAX][chance.below(5) as usize],
        };
        let heads: Heads = array::from_fn(|_| AtomicI64::new(number()));
        let target = number();
        for count in 0..=NODE_KEYS {
            let expected = search::portable(&heads, count, target);
            assert_eq!(search::search(&heads, count, target), expected);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has AVX-512, and no thread writes the heads.
                assert_eq!(unsafe { search::avx512(&heads, count, target) }, expected);
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2, and no thread writes the heads.
                assert_eq!(unsafe { search::avx2(&heads, count, target) }, expected);
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: NEON is part of 64-bit ARM, and no thread writes the heads.
            assert_eq!(unsafe { search::neon(&heads, count, target) }, expected);
            let values: Vec<i64> =
                heads[..count].iter().map(|h| h.load(std::sync::atomic::Ordering::Relaxed)).collect();
            assert_eq!(expected.less as usize, values.iter().filter(|&&h| h < target).count());
            assert_eq!(expected.equal.count_ones() as usize, values.iter().filter(|&&h| h == target).count());
        }
    }
}

#[test]
fn filter_passes_all_its_keys_and_few_others() {
    let filter = Filter::new(2000 * 2, None);
    assert_eq!(filter.bytes(), 4000);
    assert!(!filter.may_contain(mix(1)));
    for i in 0..2000 {
        filter.insert(mix(i));
    }
    assert!((0..2000).all(|i| filter.may_contain(mix(i))));
    let passed = (0..10_000).filter(|i| filter.may_contain(mix(1_000_000 + i))).count();
    assert!(passed < 250, "{passed} of 10000 absent keys pass");
    assert!(!Filter::new(0, None).may_contain(mix(3)));
}

#[test]
fn arena_pieces_are_aligned_disjoint_and_counted() {
    let mut arena = Arena::new(8 << 10, None);
    let mut chance = Chance(3);
    let mut pieces = Vec::new();
    for _ in 0..500 {
        let (kind, layout) = match chance.below(3) {
            0 => (Kind::Node, Layout::from_size_align(64 * (1 + chance.below(9) as usize), 64).unwrap()),
            1 => (Kind::Entry, Layout::from_size_align(chance.below(300) as usize, 8).unwrap()),
            _ => (Kind::Entry, Layout::from_size_align(chance.below(20_000) as usize, 8).unwrap()),
        };
        let piece = arena.allocate(kind, layout);
        // SAFETY: the piece has this size and no other user.
        unsafe { piece.write_bytes(0xa5, layout.size()) };
        assert_eq!(piece.as_ptr().addr() % layout.align(), 0);
        pieces.push((piece.as_ptr().addr(), layout.size()));
    }
    let used: usize = pieces.iter().map(|p| p.1).sum();
    pieces.retain(|p| p.1 > 0);
    pieces.sort_unstable();
    assert!(pieces.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    assert!((used..=arena.reserved_bytes()).contains(&arena.used_bytes()));
    assert!(arena.reserved_bytes() < 2 * used + (64 << 10));
}

/// The child of the key is split after the node's count was read.
#[test]
fn descent_restarts_after_a_concurrent_split_of_its_child() {
    let mut arena = Arena::new(8 << 10, None);
    let mut entry = |key: &'static [u8]| {
        let entry = EntryRef { key, sequence: 1, kind: EntryKind::Value, value: b"" };
        // SAFETY: the arena outlives the entry's use.
        unsafe { EntryPtr::write(&mut arena, entry, None) }
    };
    let choice = HeadChoice { guaranteed: 0, prefix: 0 };
    let (low, high) = (entry(b"a"), entry(b"m"));
    let (old, left, right) = (
        Node::with_keys(0, choice, &[low, high]),
        Node::with_keys(0, choice, &[low]),
        Node::with_keys(0, choice, &[high]),
    );
    // SAFETY: complete leaves that outlive the pointers' use.
    let [old, left, right] = [&old, &left, &right].map(|leaf| unsafe { NodePtr::new(NonNull::from(leaf)) });
    for separators in 0..2 {
        let inner = match separators {
            0 => Inner::new(1, choice, old, &[], &[]),
            _ => Inner::new(1, choice, left, &[low], &[old]),
        };
        assert_eq!(inner.child_for(b"m").node, old);
        let split = Cell::new(false);
        let child = inner.stable(|count| {
            let rank = count;
            if !split.replace(true) {
                inner.append(separators, high, right);
                inner.replace_child(separators, left);
            }
            rank
        });
        assert_eq!((child.node, child.rank), (right, separators + 1));
        assert_eq!(inner.child_for(b"m").node, right);
        assert_eq!(inner.child_for(b"b").node, left);
    }
}

#[test]
fn order_is_reconstructed_from_positions() {
    let mut arena = Arena::new(8 << 10, None);
    let mut chance = Chance(4);
    for sorted in [0, 1, 7, 31] {
        let mut numbers: Vec<u64> = (0..NODE_KEYS as u64).map(|_| chance.next()).collect();
        numbers[..sorted].sort_unstable();
        let mut entries = Vec::new();
        for number in &numbers {
            let entry = EntryRef { key: &number.to_be_bytes(), sequence: 1, kind: EntryKind::Value, value: b"" };
            // SAFETY: the arena outlives the entry's use.
            entries.push(unsafe { EntryPtr::write(&mut arena, entry, None) });
        }
        let node = Node::with_keys(0, HeadChoice { guaranteed: 0, prefix: 0 }, &entries[..sorted]);
        for (count, entry) in entries.iter().enumerate().skip(sorted) {
            let rank = numbers[..count].iter().filter(|&&n| n < numbers[count]).count();
            node.append(rank, *entry);
            for seen in [count / 2, count + 1].into_iter().filter(|&seen| seen >= sorted) {
                let mut expected: Vec<u8> = (0..seen as u8).collect();
                expected.sort_by_key(|&slot| numbers[usize::from(slot)]);
                assert_eq!(node.order(seen)[..seen], expected);
            }
        }
    }
}

#[test]
fn chunk_pool_keeps_chunks_up_to_its_limit_and_lends_them_again() {
    let huge = ChunkPool::LAYOUT.size();
    let pool = Arc::new(ChunkPool::new(3 * huge));
    let fill = |arena: &mut Arena, pieces: usize| {
        for _ in 0..pieces {
            let piece = arena.allocate(Kind::Entry, Layout::from_size_align(huge / 8, 8).unwrap());
            // SAFETY: the piece has this size and no other user.
            unsafe { piece.write_bytes(0x5a, huge / 8) };
        }
    };
    let mut first = Arena::new(huge, Some(Arc::clone(&pool)));
    fill(&mut first, 4 * 8);
    let mut second = Arena::new(huge, Some(Arc::clone(&pool)));
    fill(&mut second, 2 * 8);
    assert_eq!(pool.bytes(), 0, "all is out");
    drop(first);
    assert_eq!(pool.bytes(), huge, "of four, since two are out");
    fill(&mut second, 8);
    assert_eq!(pool.bytes(), 0, "lent again");
    drop(second);
    assert_eq!(pool.bytes(), 3 * huge);
    pool.trim();
    assert_eq!(pool.bytes(), 0);
}

/// A memtable of 15.25 MiB had small pages, which the pool does not keep.
#[test]
fn large_memtable_of_any_size_uses_huge_pages() {
    let huge = ChunkPool::LAYOUT.size();
    let chunk_of = |bytes: usize| crate::memtable::MemtableOptions::for_capacity(bytes).arena_chunk_bytes;
    assert_eq!([8 << 20, 122 << 17, 128 << 17, 256 << 20].map(chunk_of), [huge; 4]);
    assert_eq!(chunk_of(1 << 20), 128 << 10, "a small one is not");
}

#[test]
fn arena_begins_with_a_kept_chunk_or_a_small_one() {
    let huge = ChunkPool::LAYOUT.size();
    let pool = Arc::new(ChunkPool::new(2 * huge));
    let piece = |arena: &mut Arena| _ = arena.allocate(Kind::Entry, Layout::from_size_align(64, 8).unwrap());
    let mut arena = Arena::new(huge, Some(Arc::clone(&pool)));
    piece(&mut arena);
    assert!(arena.reserved_bytes() < huge, "nothing is kept yet");
    let before = arena.reserved_bytes();
    let _ = arena.allocate(Kind::Entry, Layout::from_size_align(huge / 4, 8).unwrap());
    assert!(arena.reserved_bytes() > before);
    drop(arena);
    let mut all: Vec<Arena> = (0..2).map(|_| Arena::new(huge, Some(Arc::clone(&pool)))).collect();
    for arena in &mut all {
        (0..9).for_each(|_| _ = arena.allocate(Kind::Entry, Layout::from_size_align(huge / 4, 8).unwrap()));
    }
    drop(all);
    assert_eq!(pool.bytes(), 2 * huge);
    let mut arena = Arena::new(huge, Some(Arc::clone(&pool)));
    piece(&mut arena);
    assert_eq!((arena.reserved_bytes(), pool.bytes()), (huge, huge), "a chunk that was kept");
}
