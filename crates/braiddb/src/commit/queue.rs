//! The commit queue: a leader commits all waiting requests as one group, then hands over.
//!
//! A caller that finds no leader leads at once, without an allocation or a wait. Any other caller
//! queues its request and parks. The leader takes the waiting requests, up to a size, commits them,
//! stores the results and wakes their owners, which then touch no shared lock. Then it makes the
//! first waiting thread the next leader, so no thread commits for others forever.
//!
//! If a leader panics, its group is notified and the next leader chosen.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    hint, slice,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    thread::{self, Thread},
};

const WAITING: u8 = 0;
const DONE: u8 = 1;
const LEAD: u8 = 2;
const ABANDONED: u8 = 3;

/// Spins before a waiter parks: most groups are committed faster than a thread wakes.
const LOOKS_MAX: u32 = 100;

struct Waiter<T, R> {
    state: AtomicU8,
    thread: Thread,
    /// Written before `state` becomes `DONE`; never contended.
    slot: Mutex<(Option<T>, Option<R>)>,
}

struct State<T, R> {
    leading: bool,
    waiting: Vec<Arc<Waiter<T, R>>>,
}

pub struct CommitQueue<T, R> {
    state: Mutex<State<T, R>>,
}

impl<T, R> std::fmt::Debug for CommitQueue<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").finish_non_exhaustive()
    }
}

impl<T, R> Default for CommitQueue<T, R> {
    fn default() -> Self {
        CommitQueue { state: Mutex::new(State { leading: false, waiting: Vec::new() }) }
    }
}

impl<T, R> CommitQueue<T, R> {
    /// Commits `request`, by a call of `commit` on this or another thread, perhaps in a group of up
    /// to `group_bytes_max` by `size_bytes`. Calls of `commit` never overlap; each passes one
    /// result per request, in order, to its second argument. `None`: the leader panicked and the
    /// outcome is unknown.
    ///
    /// `parks` measures the wait: it is called with true before this thread first parks, and with
    /// false after its last wake-up. If the thread never parks, it is not called.
    pub fn submit(
        &self,
        mut request: T,
        group_bytes_max: usize,
        size_bytes: impl Fn(&T) -> usize,
        mut parks: impl FnMut(bool),
        commit: impl FnOnce(&mut [T], &mut dyn FnMut(R)),
    ) -> Option<R> {
        let mut state = self.state.lock();
        if !state.leading && state.waiting.is_empty() {
            state.leading = true;
            drop(state);
            return Turn::new(self).lead(slice::from_mut(&mut request), commit);
        }
        let waiter = Arc::new(Waiter {
            state: AtomicU8::new(WAITING),
            thread: thread::current(),
            slot: Mutex::new((Some(request), None)),
        });
        state.waiting.push(Arc::clone(&waiter));
        drop(state);
        let mut looks = 0;
        let state = loop {
            match waiter.state.load(Ordering::Acquire) {
                WAITING if looks < LOOKS_MAX => {
                    looks += 1;
                    hint::spin_loop();
                }
                WAITING => {
                    if looks == LOOKS_MAX {
                        looks += 1;
                        parks(true);
                    }
                    thread::park();
                }
                state => break state,
            }
        };
        if looks > LOOKS_MAX {
            parks(false);
        }
        match state {
            LEAD => self.lead_waiting(&waiter, group_bytes_max, size_bytes, commit),
            _ => waiter.slot.lock().1.take(),
        }
    }

    /// Requests that wait for a leader.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// `own` has left the queue already.
    fn lead_waiting(
        &self,
        own: &Waiter<T, R>,
        group_bytes_max: usize,
        size_bytes: impl Fn(&T) -> usize,
        commit: impl FnOnce(&mut [T], &mut dyn FnMut(R)),
    ) -> Option<R> {
        let mut turn = Turn::new(self);
        let take = |w: &Waiter<T, R>| w.slot.lock().0.take().expect("a request is taken once");
        let first = take(own);
        let mut bytes = size_bytes(&first);
        let mut count = 0;
        let mut state = self.state.lock();
        while bytes <= group_bytes_max
            && let Some(waiter) = state.waiting.get(count)
        {
            bytes += waiter.slot.lock().0.as_ref().map_or(0, &size_bytes);
            count += 1;
        }
        turn.members.extend(state.waiting.drain(..count));
        drop(state);
        let mut group = vec![first];
        group.extend(turn.members.iter().map(|waiter| take(waiter)));
        turn.lead(&mut group, commit)
    }
}

/// A leader's turn. Its drop, even by a panic, abandons members without a result and chooses the
/// next leader.
struct Turn<'a, T, R> {
    queue: &'a CommitQueue<T, R>,
    members: VecDeque<Arc<Waiter<T, R>>>,
}

impl<'a, T, R> Turn<'a, T, R> {
    fn new(queue: &'a CommitQueue<T, R>) -> Turn<'a, T, R> {
        Turn { queue, members: VecDeque::new() }
    }

    fn lead(mut self, group: &mut [T], commit: impl FnOnce(&mut [T], &mut dyn FnMut(R))) -> Option<R> {
        let mut own = None;
        commit(group, &mut |answer| {
            if own.is_none() {
                own = Some(answer);
                return;
            }
            let waiter = self.members.pop_front().expect("one answer a request");
            waiter.slot.lock().1 = Some(answer);
            waiter.report(DONE);
        });
        debug_assert!(own.is_some() && self.members.is_empty(), "one answer a request");
        own
    }
}

impl<T, R> Waiter<T, R> {
    fn report(&self, state: u8) {
        // Clone first: the thread may drop its request once the state is stored.
        let thread = self.thread.clone();
        self.state.store(state, Ordering::Release);
        thread.unpark();
    }
}

impl<T, R> Drop for Turn<'_, T, R> {
    fn drop(&mut self) {
        for waiter in self.members.drain(..) {
            waiter.report(ABANDONED);
        }
        let mut state = self.queue.state.lock();
        if state.waiting.is_empty() {
            state.leading = false;
            return;
        }
        let next = state.waiting.remove(0);
        drop(state);
        next.report(LEAD);
    }
}
