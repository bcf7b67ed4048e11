//! Tests that a map lives exactly as long as its readers.

use super::MappedFile;
use crate::platform::{DeferredClose, ReadMapping, Runtime, SystemRuntime};
use crossbeam_epoch::pin;
use std::sync::{Arc, Weak};

fn mapped() -> (MappedFile, Weak<[u8]>) {
    let bytes: Arc<[u8]> = (0..=255u8).collect();
    let weak = Arc::downgrade(&bytes);
    (MappedFile::new(ReadMapping::of_copy(bytes), &Arc::default()), weak)
}

fn wait_until_gone(weak: &Weak<[u8]>) {
    let clock = SystemRuntime::new();
    while weak.strong_count() > 0 {
        assert!(clock.monotonic_ns() < 120_000_000_000, "the map was not given back");
        pin().flush();
        std::thread::yield_now();
    }
}

#[test]
fn get_of_range_outside_file_returns_none() {
    let (file, _) = mapped();
    let guard = pin();
    assert_eq!(file.len(), 256);
    assert_eq!(file.get(3..6, &guard), Some(&[3, 4, 5][..]));
    assert_eq!(&*file.pin(250..256).unwrap(), [250, 251, 252, 253, 254, 255]);
    assert_eq!(file.get(256..256, &guard), Some(&[][..]));
    let reversed = std::ops::Range { start: 5, end: 4 };
    for wrong in [250..257, 257..257, 0..u64::MAX, u64::MAX - 1..u64::MAX, reversed] {
        assert!(file.get(wrong.clone(), &guard).is_none() && file.pin(wrong.clone()).is_none(), "{wrong:?}");
    }
}

#[test]
fn pin_after_file_drop_keeps_map() {
    let (file, weak) = mapped();
    let pins: Vec<_> = (0..20).map(|at| file.pin(at..at + 2).unwrap()).collect();
    drop(file);
    for _ in 0..1000 {
        pin().flush();
    }
    assert_eq!(weak.strong_count(), 1);
    for (at, part) in (0u8..).zip(&pins) {
        assert_eq!(**part, [at, at + 1]);
    }
    drop(pins);
    wait_until_gone(&weak);
}

#[test]
fn guard_after_file_drop_keeps_map() {
    let (file, weak) = mapped();
    let guard = pin();
    let part = file.get(7..9, &guard).unwrap();
    let elsewhere = move || {
        drop(file);
        for _ in 0..1000 {
            pin().flush();
        }
    };
    SystemRuntime::new().spawn("elsewhere", Box::new(elsewhere)).unwrap().join().unwrap();
    assert_eq!((part, weak.strong_count()), (&[7, 8][..], 1));
    drop(guard);
    wait_until_gone(&weak);
}

#[test]
fn unmap_after_last_reader_is_deferred() {
    for is_pinned in [false, true] {
        let deferred_close = Arc::new(DeferredClose::default());
        deferred_close.defer(Arc::new(|| {}));
        let bytes: Arc<[u8]> = (0..=255u8).collect();
        let weak = Arc::downgrade(&bytes);
        let file = MappedFile::new(ReadMapping::of_copy(bytes), &deferred_close);
        let pinned = is_pinned.then(|| file.pin(0..4).unwrap());
        drop(file);
        assert_eq!(pinned.as_deref(), is_pinned.then_some(&[0, 1, 2, 3][..]));
        drop(pinned);
        let clock = SystemRuntime::new();
        while !format!("{deferred_close:?}").contains("waiting: 1") {
            assert!(weak.strong_count() > 0, "undone here");
            assert!(clock.monotonic_ns() < 120_000_000_000, "it was not let go of");
            pin().flush();
            std::thread::yield_now();
        }
        assert!(weak.strong_count() > 0, "undone here");
        deferred_close.work();
        assert_eq!(weak.strong_count(), 0);
    }
}
