//! A shared value that is replaced now and then, and borrowed without a count: one of the islands of unsafe.
//!
//! These are hazard pointers (Michael, "Hazard pointers: safe memory reclamation for lock-free objects", 2004), one for each thread, with barriers on one side
//! ([`super::barrier`]): a **reader** notes in its thread's slot which value it is about to use, looks whether that is still the present one, and clears
//! the slot when it is done. That is two stores to memory of its own, and no wait. Who **replaces** the value looks through all slots before it
//! lets go of the old one; if that is in use it is kept, and the reader is told that somebody waits.
//!
//! Why this is sound: reader and replacer each write (the slot; the present value) and then read the other's, with a barrier between. So either the reader sees the new
//! value, and does not use the old one, or the replacer sees the slot. The same holds at the end: either the reader sees that the value was replaced and somebody
//! waits (`is_awaited`), and looks for what can go, or the replacer, who looks once more after it has said so, sees that the slot is clear.

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

/// What a thread is using, or null; on a line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Slot {
    used: AtomicPtr<()>,
    /// What [`barrier::is_one_sided`] says: here it is at hand.
    is_one_sided: bool,
}

/// All slots there ever were. They are never freed, and threads that begin take those of threads that have ended.
static SLOTS: Mutex<Slots> = Mutex::new(Slots { all: Vec::new(), free: Vec::new() });

struct Slots {
    all: Vec<&'static Slot>,
    free: Vec<&'static Slot>,
}

thread_local! {
    /// The thread's slot, once it has one.
    static MINE: Cell<Option<&'static Slot>> = const { Cell::new(None) };
    /// Gives it back.
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
        // The thread's later looks find that `OWNED` is gone, and do without.
        MINE.set(None);
        SLOTS.lock().free.push(self.0);
    }
}

/// The calling thread's slot; `None` while the thread ends.
#[cold]
fn take_mine() -> Option<&'static Slot> {
    let slot = OWNED.try_with(|owned| owned.0).ok()?;
    MINE.set(Some(slot));
    Some(slot)
}

/// A value that is replaced as a whole. Shared by all threads.
#[derive(Debug)]
pub struct HazardCell<T> {
    /// The present value, which `held` holds; null once it is lent no more.
    present: AtomicPtr<T>,
    /// Whether values that were replaced wait for readers.
    is_awaited: AtomicBool,
    held: Mutex<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    present: Arc<T>,
    /// Whether it is lent.
    is_lent: bool,
    /// Replaced, and in use when last looked at.
    replaced: Vec<Arc<T>>,
}

/// A value that is borrowed by one thread.
#[derive(Debug)]
pub struct Borrowed<'a, T> {
    value: &'a T,
    of: &'a HazardCell<T>,
    slot: &'static Slot,
    /// The slot is the thread's.
    _stays: PhantomData<*const ()>,
}

impl<T> HazardCell<T> {
    /// The first value.
    pub fn new(value: Arc<T>) -> HazardCell<T> {
        let present = AtomicPtr::new(Arc::as_ptr(&value).cast_mut());
        let held = Mutex::new(Held { present: value, is_lent: true, replaced: Vec::new() });
        HazardCell { present, is_awaited: AtomicBool::new(false), held }
    }

    /// Replaces the value. The old one goes as soon as nobody uses it: now, or when who does is done.
    pub fn replace(&self, value: Arc<T>) {
        let mut held = self.held.lock();
        if held.is_lent {
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

    /// Lends neither this value nor those that replace it any more.
    pub fn retire(&self) {
        let mut held = self.held.lock();
        held.is_lent = false;
        self.present.store(ptr::null_mut(), Ordering::Release);
    }

    /// The value as it is now; `None` if the thread is using another, or ends, or the value is being replaced, or lent no more: then there are other ways.
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
        // Release: who reads the slot learns that what was used before is not in use any more.
        slot.used.store(noted.cast(), Ordering::Release);
        barrier::light(slot.is_one_sided);
        #[cfg(test)]
        super::tests::hazard_cell::reach(super::tests::hazard_cell::Moment::Noted);
        if noted.is_null() || self.present.load(Ordering::Acquire) != noted {
            self.end(slot, noted);
            return None;
        }
        // SAFETY: `held` holds the present value, and whoever takes it out of there looks at all slots first, of which this one says
        // that it is in use: it was the present one after that had been noted (see the module's text).
        let value = unsafe { &*noted };
        Some(Borrowed { value, of: self, slot, _stays: PhantomData })
    }

    /// Ends the use of a value, and sees to it that it goes if it was replaced meanwhile. (Others need not look.)
    #[inline(always)]
    fn end(&self, slot: &Slot, value: *const T) {
        slot.used.store(ptr::null_mut(), Ordering::Release);
        barrier::light(slot.is_one_sided);
        let is_replaced = !ptr::eq(self.present.load(Ordering::Relaxed), value);
        if is_replaced && self.is_awaited.load(Ordering::Relaxed) {
            self.let_go();
        }
    }

    /// Lets go of what nobody uses any more.
    #[cold]
    fn let_go(&self) {
        let mut held = self.held.lock();
        let mut unused = held.take_unused();
        self.is_awaited.store(!held.replaced.is_empty(), Ordering::Relaxed);
        unused.extend(held.take_unused());
        drop(held);
    }
}

impl<T> Held<T> {
    /// Takes out what was replaced and is in no slot. What comes of it is dropped by the caller without the lock.
    fn take_unused(&mut self) -> Vec<Arc<T>> {
        if self.replaced.is_empty() || !barrier::heavy() {
            return Vec::new();
        }
        let slots = SLOTS.lock();
        // Acquire: what a reader has read it has read before it cleared its slot.
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
