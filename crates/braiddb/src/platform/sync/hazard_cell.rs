//! A shared value that is rarely replaced, and borrowed without reference counting.
//!
//! These are hazard pointers (Michael, "Hazard pointers: safe memory reclamation for lock-free
//! objects", 2004), one per thread, with one-sided barriers ([`super::barrier`]). A **reader**
//! stores the pointer in its thread's slot, checks that it is still current, and clears the slot
//! after use: two stores to its own cache line, no waiting. A **writer** replaces the pointer and
//! scans all slots before dropping the old value. If a slot holds it, the writer retains it and
//! sets `is_awaited`.
//!
//! INVARIANT H1: no value is dropped while a slot holds it. Reader and writer each store (slot;
//! current pointer), pass a barrier, then load the other's store. So the reader sees the new
//! pointer and does not use the old value, or the writer sees the slot. Likewise at the end: the
//! reader sees the replacement and `is_awaited` and collects the value, or the writer, which scans
//! again after setting `is_awaited`, sees the cleared slot.

use super::barrier;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    marker::PhantomData,
    ops::Deref,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
};

/// The pointer in use by a thread, or null.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    used: AtomicPtr<()>,
    /// A copy of [`barrier::is_one_sided`].
    is_one_sided: bool,
}

/// All slots: never freed; new threads reuse those of ended threads.
static SLOTS: Mutex<Slots> = Mutex::new(Slots { all: Vec::new(), free: Vec::new() });

struct Slots {
    all: Vec<&'static Slot>,
    free: Vec<&'static Slot>,
}

thread_local! {
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Returns the slot when the thread ends.
    static OWNED: Owned = Owned(Slots::take());
}

struct Owned(&'static Slot);

impl Slots {
    fn take() -> &'static Slot {
        let mut slots = SLOTS.lock();
        slots.free.pop().unwrap_or_else(|| {
            let slot = Slot { used: AtomicPtr::new(ptr::null_mut()), is_one_sided: barrier::is_one_sided() };
            let slot: &'static Slot = Box::leak(Box::new(slot));
            slots.all.push(slot);
            slot
        })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Later borrows in this thread find `OWNED` gone and return `None`.
        MINE.set(None);
        SLOTS.lock().free.push(self.0);
    }
}

/// `None` while the thread ends.
#[cold]
fn take_mine() -> Option<&'static Slot> {
    let slot = OWNED.try_with(|owned| owned.0).ok()?;
    MINE.set(Some(slot));
    Some(slot)
}

#[derive(Debug)]
pub struct HazardCell<T> {
    /// The current value, owned by `held`; null after [`HazardCell::retire`].
    present: AtomicPtr<T>,
    is_awaited: AtomicBool,
    held: Mutex<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    present: Arc<T>,
    /// False after [`HazardCell::retire`].
    is_owned_by_cell: bool,
    replaced: Vec<Arc<T>>,
}

#[derive(Debug)]
pub struct Borrowed<'a, T> {
    value: &'a T,
    of: &'a HazardCell<T>,
    slot: &'static Slot,
    /// Not `Send`: the slot belongs to the thread.
    _stays: PhantomData<*const ()>,
}

impl<T> HazardCell<T> {
    pub fn new(value: Arc<T>) -> HazardCell<T> {
        let present = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        let held = Mutex::new(Held { present: value, is_owned_by_cell: true, replaced: Vec::new() });
        HazardCell { present, is_awaited: AtomicBool::new(false), held }
    }

    /// The old value is dropped now, or when its last reader ends.
    pub fn replace(&self, value: Arc<T>) {
        let mut held = self.held.lock();
        if held.is_owned_by_cell {
            self.present.store(Arc::as_ptr(&value).cast_mut(), Ordering::Release);
        }
        let old = std::mem::replace(&mut held.present, value);
        held.replaced.push(old);
        let mut unused = held.take_unused();
        if !held.replaced.is_empty() {
            self.is_awaited.store(true, Ordering::Relaxed);
            unused.extend(held.take_unused());
        }
        drop(held);
    }

    pub fn retire(&self) {
        let mut held = self.held.lock();
        held.is_owned_by_cell = false;
        self.present.store(ptr::null_mut(), Ordering::Release);
    }

    /// `None` if the thread already borrows a value or is ending, during a replacement, and after
    /// [`HazardCell::retire`]; the caller then uses a slower way.
    #[inline(always)]
    pub fn borrow(&self) -> Option<Borrowed<'_, T>> {
        let slot = match MINE.get() {
            Some(slot) => slot,
            None => take_mine()?,
        };
        if !slot.used.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let noted = self.present.load(Ordering::Acquire);
        #[cfg(test)]
        super::tests::hazard_cell::reach(super::tests::hazard_cell::Moment::Noting);
        // Release: a writer that reads the slot knows that the previous use has ended.
        slot.used.store(noted.cast(), Ordering::Release);
        barrier::light(slot.is_one_sided);
        #[cfg(test)]
        super::tests::hazard_cell::reach(super::tests::hazard_cell::Moment::Noted);
        if noted.is_null() || self.present.load(Ordering::Acquire) != noted {
            self.end(slot, noted);
            return None;
        }
        // SAFETY: `held` owns the current value. A thread that removes it there scans all slots
        // before the drop, and this slot held it while it was still current (INVARIANT H1).
        let value = unsafe { &*noted };
        Some(Borrowed { value, of: self, slot, _stays: PhantomData })
    }

    /// Drops the value if it was replaced meanwhile; only its readers need to check.
    #[inline(always)]
    fn end(&self, slot: &Slot, value: *const T) {
        slot.used.store(ptr::null_mut(), Ordering::Release);
        barrier::light(slot.is_one_sided);
        let is_replaced = !ptr::eq(self.present.load(Ordering::Relaxed), value);
        if is_replaced && self.is_awaited.load(Ordering::Relaxed) {
            self.release();
        }
    }

    #[cold]
    fn release(&self) {
        let mut held = self.held.lock();
        let mut unused = held.take_unused();
        self.is_awaited.store(!held.replaced.is_empty(), Ordering::Relaxed);
        unused.extend(held.take_unused());
        drop(held);
    }
}

impl<T> Held<T> {
    /// The caller drops them without the lock.
    fn take_unused(&mut self) -> Vec<Arc<T>> {
        if self.replaced.is_empty() || !barrier::heavy() {
            return Vec::new();
        }
        let slots = SLOTS.lock();
        // Acquire: a reader's loads happen before it clears its slot.
        let used: Vec<*mut ()> = slots.all.iter().map(|slot| slot.used.load(Ordering::Acquire)).collect();
        drop(slots);
        let is_used = |value: &mut Arc<T>| used.contains(&Arc::as_ptr(value).cast_mut().cast());
        self.replaced.extract_if(.., |value| !is_used(value)).collect()
    }
}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Borrowed<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.of.end(self.slot, self.value);
    }
}
