//! The commit queue: one leader takes what is waiting, commits it as a group, and hands over to the next leader.
//!
//! A caller that finds no leader becomes it at once, without an allocation or a wait. A caller that finds one
//! leaves its request and parks. The leader takes all requests that wait, up to a size, commits them, stores each
//! answer in its request and wakes its owner; an owner touches no common lock after waking, so that a large group
//! does not queue up again on a mutex. Then the leader makes the first of those that came meanwhile the next leader
//! and returns: nobody commits for others for ever.

use parking_lot::Mutex;
use std::{
    mem,
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
    /// `commit` is never called twice at once. It must return one answer a request, in order. A group holds requests
    /// of up to `group_bytes_max` in all, by `size_bytes`.
    pub fn submit(
        &self,
        request: T,
        group_bytes_max: usize,
        size_bytes: impl Fn(&T) -> usize,
        commit: impl FnOnce(Vec<T>) -> Vec<R>,
    ) -> R {
        let mut state = self.state.lock();
        if !state.leading && state.waiting.is_empty() {
            state.leading = true;
            drop(state);
            return self.lead(vec![request], Vec::new(), commit);
        }
        let waiter = Arc::new(Waiter {
            state: AtomicU8::new(WAITING),
            thread: thread::current(),
            slot: Mutex::new((Some(request), None)),
        });
        state.waiting.push(Arc::clone(&waiter));
        drop(state);
        loop {
            match waiter.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                DONE => return waiter.slot.lock().1.take().expect("an answer stands before DONE is stored"),
                _ => break,
            }
        }
        self.lead_waiting(&waiter, group_bytes_max, size_bytes, commit)
    }

    /// Leads the group of all that wait; `own` was taken off the queue when it was chosen.
    fn lead_waiting(
        &self,
        own: &Arc<Waiter<T, R>>,
        group_bytes_max: usize,
        size_bytes: impl Fn(&T) -> usize,
        commit: impl FnOnce(Vec<T>) -> Vec<R>,
    ) -> R {
        let take = |w: &Waiter<T, R>| w.slot.lock().0.take().expect("a request is taken once");
        let first = take(own);
        let mut bytes = size_bytes(&first);
        let mut group = vec![first];
        let mut members = Vec::new();
        let mut state = self.state.lock();
        let mut rest = Vec::new();
        for waiter in mem::take(&mut state.waiting) {
            if !rest.is_empty() || bytes > group_bytes_max {
                rest.push(waiter);
                continue;
            }
            let request = take(&waiter);
            bytes += size_bytes(&request);
            group.push(request);
            members.push(waiter);
        }
        state.waiting = rest;
        drop(state);
        self.lead(group, members, commit)
    }

    fn lead(&self, group: Vec<T>, members: Vec<Arc<Waiter<T, R>>>, commit: impl FnOnce(Vec<T>) -> Vec<R>) -> R {
        let handover = Handover { queue: self };
        let mut answers = commit(group).into_iter();
        let own = answers.next().expect("one answer a request");
        for waiter in members {
            waiter.slot.lock().1 = Some(answers.next().expect("one answer a request"));
            waiter.state.store(DONE, Ordering::Release);
            waiter.thread.unpark();
        }
        drop(handover);
        own
    }
}

/// Chooses the next leader when it is dropped, also by a panic of the commit.
struct Handover<'a, T, R> {
    queue: &'a CommitQueue<T, R>,
}

impl<T, R> Drop for Handover<'_, T, R> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        if state.waiting.is_empty() {
            state.leading = false;
            return;
        }
        let next = state.waiting.remove(0);
        drop(state);
        next.state.store(LEAD, Ordering::Release);
        next.thread.unpark();
    }
}
