//! The commit queue: one leader takes what is waiting, commits it as a group, and hands over to the next leader.
//!
//! A caller that finds no leader becomes it at once, without an allocation or a wait. A caller that finds one
//! leaves its request and parks. The leader takes all requests that wait, up to a size, commits them, stores each
//! answer in its request and wakes its owner; an owner touches no common lock after waking, so that a large group
//! does not queue up again on a mutex. Then the leader makes the first of those that came meanwhile the next leader
//! and returns: nobody commits for others for ever. Should a leader panic, the members of its group are told that their
//! requests were abandoned, and the next leader is chosen all the same: nobody is left parked.

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

/// The waiter's request was neither answered, nor is it its turn to lead.
const WAITING: u8 = 0;
/// The answer stands in the request.
const DONE: u8 = 1;
/// The waiter is to lead the next group, its own request first.
const LEAD: u8 = 2;
/// The leader of the waiter's group has panicked.
const ABANDONED: u8 = 3;

/// A waiter looks so often before it parks: most groups are committed sooner than it could be woken.
const LOOKS_MAX: u32 = 100;

struct Waiter<T, R> {
    state: AtomicU8,
    thread: Thread,
    /// Written before `state` becomes DONE; locked by one side at a time, so never contended.
    slot: Mutex<(Option<T>, Option<R>)>,
}

struct State<T, R> {
    leading: bool,
    waiting: Vec<Arc<Waiter<T, R>>>,
}

/// A queue of requests `T` that are answered by `R`.
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
    /// Has `request` committed: by `commit`, called by this thread with this request and others, or by another thread.
    /// `commit` is never called twice at once. It must give one answer a request, in order, to the function that it is
    /// called with. A group holds requests of up to `group_bytes_max` in all, by `size_bytes`. `None` if the thread that
    /// led the request's group has panicked: what became of the request is not known.
    pub fn submit(
        &self,
        mut request: T,
        group_bytes_max: usize,
        size_bytes: impl Fn(&T) -> usize,
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
        loop {
            match waiter.state.load(Ordering::Acquire) {
                WAITING if looks < LOOKS_MAX => {
                    looks += 1;
                    hint::spin_loop();
                }
                WAITING => thread::park(),
                LEAD => return self.lead_waiting(&waiter, group_bytes_max, size_bytes, commit),
                // Without an answer it was abandoned.
                _ => return waiter.slot.lock().1.take(),
            }
        }
    }

    /// Leads the group of all that wait; `own` was taken off the queue when it was chosen.
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

/// The leader's turn. When it is dropped, also by a panic, members without an answer are told so, and the next leader is
/// chosen.
struct Turn<'a, T, R> {
    queue: &'a CommitQueue<T, R>,
    /// Those of the group that were not told yet, the leader not among them.
    members: VecDeque<Arc<Waiter<T, R>>>,
}

impl<'a, T, R> Turn<'a, T, R> {
    fn new(queue: &'a CommitQueue<T, R>) -> Turn<'a, T, R> {
        Turn { queue, members: VecDeque::new() }
    }

    /// Commits the group: the leader's own request, then those of the members.
    fn lead(mut self, group: &mut [T], commit: impl FnOnce(&mut [T], &mut dyn FnMut(R))) -> Option<R> {
        let mut own = None;
        commit(group, &mut |answer| {
            if own.is_none() {
                own = Some(answer);
                return;
            }
            let waiter = self.members.pop_front().expect("one answer a request");
            waiter.slot.lock().1 = Some(answer);
            waiter.tell(DONE);
        });
        debug_assert!(own.is_some() && self.members.is_empty(), "one answer a request");
        own
    }
}

impl<T, R> Waiter<T, R> {
    fn tell(&self, state: u8) {
        // The clone outlives the request, which its thread may drop as soon as the state is stored.
        let thread = self.thread.clone();
        self.state.store(state, Ordering::Release);
        thread.unpark();
    }
}

impl<T, R> Drop for Turn<'_, T, R> {
    fn drop(&mut self) {
        for waiter in self.members.drain(..) {
            waiter.tell(ABANDONED);
        }
        let mut state = self.queue.state.lock();
        if state.waiting.is_empty() {
            state.leading = false;
            return;
        }
        let next = state.waiting.remove(0);
        drop(state);
        next.tell(LEAD);
    }
}
