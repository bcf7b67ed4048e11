use super::*;
use crate::codec::hash64;
use crate::platform::fault_vfs::FaultVfs;
use crate::view::bits::is_joined;

#[test]
fn hash_index_with_direct_offsets_matches_sorted_list() {
    for (seed, runs, tombstones) in [(3000, 1, 0), (3001, 2, 0), (3002, 3, 1)] {
        let mut world = World::new(seed);
        world.ctx.vfs = Arc::new(FaultVfs::new(Path::new("/db")));
        world.block_bytes = 4096;
        for _ in 0..runs {
            world.add_run(Shape::Hashed, 1500, tombstones);
        }
        let view = world.build(&Bounds::default());
        world.check(&view, &Bounds::default());
        assert!(
            view.hash_index.get().is_some_and(|index| index.has_direct_offsets()),
            "the blocks of {runs} runs have pages"
        );

        // Reads without sequence numbers return the same entries.
        let guard = crossbeam_epoch::pin();
        let (mut values, mut others) = (0, 0);
        for shown in world.shown(&Bounds::default(), u64::MAX >> 2) {
            let hash = hash64(&shown.key);
            let found = view.find_hashed(&world.runs, &shown.key, hash, u64::MAX >> 2, &guard).unwrap().unwrap();
            assert_eq!((found.key, found.kind, found.value), (&shown.key[..], shown.kind, &shown.value[..]));
            if found.kind == EntryKind::Value {
                values += 1;
            } else {
                assert_eq!(found.sequence, shown.sequence);
                others += 1;
            }
        }
        assert!(values > 100 && others > 100);
    }
}

#[test]
fn is_joined_of_split_key_detects_any_difference() {
    let bytes: Vec<u8> = (0..100).map(|i| i as u8 ^ 0x5a).collect();
    for len in 4..70 {
        let key = &bytes[..len];
        let parts = (*key.first_chunk().unwrap(), &key[4..]);
        assert!(is_joined(key, parts));
        assert!(!is_joined(&bytes[..len + 1], parts) && !is_joined(&key[..len - 1], parts) && !is_joined(b"", parts));
        for at in 0..len {
            let mut other = key.to_vec();
            other[at] ^= 0x80;
            assert!(!is_joined(&other, parts), "byte {at} of {len}");
        }
    }
}

#[test]
fn hash_index_with_direct_offsets_reads_cached_blocks() {
    let mut world = World::new(3010);
    world.ctx.vfs = Arc::new(FaultVfs::new(Path::new("/db")));
    world.block_bytes = 4096;
    world.add_run(Shape::Hashed, 1500, 0);
    let view = world.build(&Bounds::default());
    world.check(&view, &Bounds::default());
    assert!(view.hash_index.get().is_some_and(|index| index.has_direct_offsets()));
    let meta = world.runs[0].meta().clone();
    let path = world.runs[0].path().to_owned();
    world.ctx.in_place = false;
    world.runs = vec![Run::open(&world.ctx, &path, &meta).unwrap()];
    let guard = crossbeam_epoch::pin();
    for _ in 0..2 {
        for shown in world.shown(&Bounds::default(), u64::MAX >> 2) {
            let found = view.get(&world.runs, &shown.key, u64::MAX >> 2, &guard).unwrap().map(Owned::of);
            assert_eq!(found.as_ref(), Some(shown));
        }
    }
    let stats = world.ctx.cache.stats();
    assert!(stats.hits > stats.misses && stats.misses > 0);
}
