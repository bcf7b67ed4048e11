use super::{BlockCache, CacheSlots};
use crate::base::Error;
use crate::platform::{Runtime, SystemRuntime};
use crossbeam_epoch::pin;
use std::sync::{
    Arc, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

fn contents(file: u64, unit: u32, len: usize) -> Vec<u8> {
    let seed = file << 32 | u64::from(unit);
    let words = (0..len.div_ceil(8) as u64).flat_map(|at| (seed ^ at.wrapping_mul(0x9e37_79b9)).to_le_bytes());
    words.take(len).collect()
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn touch(slots: &CacheSlots, unit: u32) -> bool {
    let mut is_hit = true;
    let guard = pin();
    let bytes = slots.get_or_load(unit, &guard, || {
        is_hit = false;
        Ok(contents(1, unit, 4096))
    });
    assert_eq!(bytes.unwrap()[..8], contents(1, unit, 8));
    is_hit
}

/// Waits for the condition itself, since other tests of the process may hold guards.
fn settle(is_done: impl Fn() -> bool) {
    let clock = SystemRuntime::new();
    let start = clock.monotonic_ns();
    while !is_done() {
        assert!(clock.monotonic_ns() - start < 120_000_000_000, "memory was not reclaimed");
        pin().flush();
        std::thread::yield_now();
    }
}

#[test]
fn get_or_load_of_any_size_loads_once() {
    let cache = BlockCache::new(16 << 20);
    let sizes = [0, 1, 63, 64, 65, 2048, 2049, 4095, 4096, 4097, 8192, 100_000];
    let slots = CacheSlots::new(&cache, sizes.len() as u32);
    for round in 0..3 {
        for (unit, &len) in sizes.iter().enumerate() {
            let guard = pin();
            let bytes = slots.get_or_load(unit as u32, &guard, || {
                assert_eq!(round, 0, "unit {unit} was loaded already");
                Ok(contents(1, unit as u32, len))
            });
            let bytes = bytes.unwrap();
            assert_eq!(bytes, contents(1, unit as u32, len));
            if len % 64 == 0 && len > 0 {
                assert_eq!(bytes.as_ptr() as usize % 64, 0, "unit of {len} bytes");
            }
            slots.hint(unit as u32).prefetch([len, len / 2]);
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (2 * sizes.len() as u64, sizes.len() as u64));
    assert_eq!(stats.loaded_bytes, sizes.iter().sum::<usize>() as u64);
    assert_eq!(stats.overshoots, 0);
}

#[test]
fn get_or_load_after_failed_load_loads_again() {
    let cache = BlockCache::new(1 << 20);
    let slots = CacheSlots::new(&cache, 1);
    let guard = pin();
    let failed = slots.get_or_load(0, &guard, || Err(Error::Closed));
    assert!(matches!(failed, Err(Error::Closed)));
    assert!(slots.pin_or_load(0, || Err(Error::Closed)).is_err());
    assert!(slots.get(0, &guard).is_none());
    assert_eq!(cache.usage_bytes(), 0);
    assert!(slots.get_or_load(0, &guard, || Ok(vec![1])).is_ok());
    assert!(slots.get(0, &guard).is_some());
}

#[test]
fn usage_after_set_capacity_stays_within_it() {
    for (capacity, sizes) in [(256 << 10, [4096, 4096]), (8 << 20, [4096, 4096]), (8 << 20, [4096, 9000])] {
        let cache = BlockCache::new(capacity);
        let slots = CacheSlots::new(&cache, 20_000);
        for unit in 0..20_000u32 {
            let guard = pin();
            let len = sizes[unit as usize % 2];
            let bytes = slots.get_or_load(unit, &guard, || Ok(contents(1, unit, len))).unwrap();
            assert_eq!(bytes.len(), len);
        }
        let stats = cache.stats();
        assert!(stats.evictions > 0);
        settle(|| cache.usage_bytes() <= capacity);
        assert!(cache.usage_bytes() > capacity / 2, "{} of {capacity}", cache.usage_bytes());
        cache.set_capacity(100 << 10);
        settle(|| cache.usage_bytes() <= 100 << 10);
        cache.set_capacity(capacity);
        drop(slots);
        settle(|| cache.usage_bytes() < 3 << 20);
        cache.set_capacity(0);
        settle(|| cache.usage_bytes() == 0);
    }
}

#[test]
fn usage_after_long_guard_shrinks_without_miss() {
    for (capacity, len) in [(8 << 20, 4096), (8 << 20, 1000), (8 << 20, 9000)] {
        let cache = BlockCache::new(capacity);
        let slots = CacheSlots::new(&cache, 8000);
        for unit in 0..4000u32 {
            slots.get_or_load(unit, &pin(), || Ok(contents(1, unit, 4096))).unwrap();
        }
        let guard = pin();
        for unit in 4000..8000u32 {
            slots.get_or_load(unit, &guard, || Ok(contents(1, unit, len))).unwrap();
        }
        assert!(cache.stats().overshoots > 0);
        assert!(cache.usage_bytes() > capacity);
        drop(guard);
        let misses = cache.stats().misses;
        settle(|| cache.usage_bytes() <= capacity);
        assert_eq!(cache.stats().misses, misses);
        assert!(cache.usage_bytes() > capacity / 2, "{} of {capacity}, units of {len} bytes", cache.usage_bytes());
    }
}

#[test]
fn scan_of_cold_units_keeps_hot_set() {
    let units = 2000u32;
    let cache = BlockCache::new(units as usize * 4200 + (64 << 10));
    let slots = CacheSlots::new(&cache, 100 * units);
    let hot = units * 3 / 4;
    let mut random = 1;
    for _ in 0..20 * hot {
        touch(&slots, (splitmix(&mut random) % u64::from(hot)) as u32);
    }
    for unit in units..50 * units {
        touch(&slots, unit);
    }
    let hits = (0..hot).filter(|&unit| slots.get(unit, &pin()).is_some()).count();
    assert!(hits as f64 > 0.95 * f64::from(hot), "{hits} of {hot} hot units were left");
}

/// Ghosts of formerly hot units made a scan evict the hot set.
#[test]
fn scan_of_formerly_hot_units_keeps_hot_set() {
    let units = 2000u32;
    let cache = BlockCache::new(units as usize * 4200 + (64 << 10));
    let slots = CacheSlots::new(&cache, 6 * units);
    let mut random = 3;
    for _ in 0..30_000 {
        touch(&slots, units + (splitmix(&mut random) % 1500) as u32 * 4);
    }
    let hot = units / 2;
    let read_hot = || (0..hot).filter(|&unit| touch(&slots, unit)).count();
    while read_hot() < hot as usize {}
    // Touches in the nursery do not count, so first push these units out of it.
    (5 * units..5 * units + 100).for_each(|unit| assert!(!touch(&slots, unit)));
    read_hot();
    for scan in 1..=3 {
        for unit in units..5 * units {
            touch(&slots, unit);
        }
        let hits = read_hot();
        assert!(hits as f64 > 0.98 * f64::from(hot), "{hits} of {hot} hot units are left after scan {scan}");
    }
}

#[test]
fn working_set_larger_than_cold_part_becomes_hot() {
    let units = 2000u32;
    let cache = BlockCache::new(units as usize * 4200 + (64 << 10));
    let slots = CacheSlots::new(&cache, 1 << 20);
    let mut random = 7;
    let mut next = 10_000;
    for _ in 0..30_000 {
        touch(&slots, 5000 + (splitmix(&mut random) % 1500) as u32);
    }
    // Half of all accesses go to a set of 60 % of the cache. Only ghosts reveal the set, since its
    // units are seldom read twice while cold.
    let mut round = |accesses: u32| {
        let mut hits = 0;
        for _ in 0..accesses {
            hits += u32::from(touch(&slots, (splitmix(&mut random) % 1200) as u32));
            next += 1;
            touch(&slots, next);
        }
        f64::from(hits) / f64::from(accesses)
    };
    round(4000);
    let rate = round(3000);
    assert!(rate > 0.75, "hit rate {rate}");
}

#[test]
fn pin_after_eviction_file_and_cache_keeps_unit() {
    let cache = BlockCache::new(64 << 10);
    let slots = CacheSlots::new(&cache, 4000);
    let load = |unit| slots.pin_or_load(unit, || Ok(contents(1, unit, 100 + unit as usize * 2))).unwrap();
    let pins: Vec<_> = (0..2000).map(load).collect();
    let stats = cache.stats();
    assert!(stats.overshoots > 0, "all pinned, so the capacity must be passed");
    assert!(stats.usage_bytes > stats.capacity_bytes);
    assert_eq!(&*load(1999), &*pins[1999]);
    drop(slots);
    settle(|| cache.usage_bytes() > 0);
    drop(cache);
    for _ in 0..100 {
        pin().flush();
    }
    for (unit, pinned) in pins.iter().enumerate() {
        assert_eq!(**pinned, contents(1, unit as u32, 100 + unit * 2));
    }
}

#[test]
fn pin_in_chunk_after_cache_drop_keeps_unit() {
    let cache = BlockCache::new(16 << 20);
    let slots = CacheSlots::new(&cache, 1200);
    let pins: Vec<_> = (0..1200).map(|unit| slots.pin_or_load(unit, || Ok(contents(1, unit, 4096))).unwrap()).collect();
    assert!(cache.usage_bytes() > 4 << 20);
    drop((slots, cache));
    for unit in (0..1200).rev() {
        assert_eq!(*pins[unit], contents(1, unit as u32, 4096));
        pin().flush();
    }
    drop(pins);
}

#[test]
fn get_or_load_of_too_large_unit_does_not_cache_it() {
    let cache = BlockCache::new(1 << 20);
    let slots = CacheSlots::new(&cache, 10);
    touch(&slots, 0);
    let guard = pin();
    let large = slots.get_or_load(1, &guard, || Ok(contents(1, 1, 5 << 20))).unwrap();
    assert_eq!(large, contents(1, 1, 5 << 20));
    assert!(slots.get(1, &guard).is_none());
    assert!(slots.get(0, &guard).is_some(), "it flushed the rest");
    drop(guard);
    let pinned = slots.pin_or_load(1, || Ok(contents(1, 1, 5 << 20))).unwrap();
    assert_eq!(*pinned, contents(1, 1, 5 << 20));
    drop(pinned);
    settle(|| {
        touch(&slots, 2);
        touch(&slots, 3);
        cache.usage_bytes() < 1 << 20
    });
}

fn stress(capacity: usize, unit_len: impl Fn(u32) -> usize + Sync, rounds: u64) -> u64 {
    const FILES: usize = 4;
    const UNITS: u32 = 300;
    let cache = BlockCache::new(capacity);
    let ids = AtomicU64::new(0);
    let fresh = || {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        Arc::new((id, CacheSlots::new(&cache, UNITS)))
    };
    let files: Vec<RwLock<Arc<(u64, CacheSlots)>>> = (0..FILES).map(|_| RwLock::new(fresh())).collect();
    let is_stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (files, unit_len, is_stopped, fresh, cache) = (&files, &unit_len, &is_stopped, &fresh, &cache);
            scope.spawn(move || {
                let mut random = thread;
                let mut pins = Vec::new();
                for round in 0..rounds {
                    let draw = splitmix(&mut random);
                    let file = files[draw as usize % FILES].read().unwrap().clone();
                    let unit = ((draw >> 8) % u64::from(UNITS)) as u32;
                    let unit = if draw >> 20 & 3 == 0 { unit } else { unit % 20 };
                    let load = || Ok(contents(file.0, unit, unit_len(unit)));
                    match draw >> 32 & 15 {
                        0..8 => {
                            let guard = pin();
                            let bytes = file.1.get_or_load(unit, &guard, load).unwrap();
                            drop(file.clone());
                            assert_eq!(bytes, contents(file.0, unit, unit_len(unit)));
                        }
                        8..11 => {
                            let guard = pin();
                            if let Some(bytes) = file.1.get(unit, &guard) {
                                assert_eq!(bytes, contents(file.0, unit, unit_len(unit)));
                            }
                        }
                        11..15 => pins.push((file.0, unit, file.1.pin_or_load(unit, load).unwrap())),
                        _ => {}
                    }
                    if pins.len() > 20 {
                        let (id, unit, pinned) = pins.swap_remove(draw as usize % pins.len());
                        assert_eq!(*pinned, contents(id, unit, unit_len(unit)));
                    }
                    if round % 64 == 63 {
                        *files[(draw >> 40) as usize % FILES].write().unwrap() = fresh();
                    }
                    if round % 512 == 511 {
                        cache.set_capacity(if draw & 1 == 0 { capacity } else { capacity / 2 });
                    }
                    if is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                }
                for (id, unit, pinned) in pins {
                    assert_eq!(*pinned, contents(id, unit, unit_len(unit)));
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.hits > 0 && stats.misses > 0, "{stats:?}");
    drop(files);
    cache.set_capacity(0);
    settle(|| cache.usage_bytes() == 0);
    stats.evictions
}

fn stress_until_evicted(capacity: usize, unit_len: impl Fn(u32) -> usize + Sync, rounds: u64) {
    assert!((0..50).any(|_| stress(capacity, &unit_len, rounds) > 0), "nothing was ever evicted");
}

#[test]
fn concurrent_gets_of_single_units_return_right_contents() {
    stress_until_evicted(40 << 10, |unit| 10 + unit as usize * 37 % 3000, 6000);
}

#[test]
fn concurrent_gets_in_chunks_return_right_contents() {
    stress_until_evicted(5 << 20, |unit| if unit % 10 == 0 { 9000 } else { 4096 - unit as usize }, 4000);
}
