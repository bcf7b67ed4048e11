//! Delivers events to the program's listener, on a thread of its own.
//!
//! The engine only appends to a queue, so it may do so under any lock: the queue's lock is a leaf,
//! and no listener runs under it. No thread of the engine waits for the delivery thread. So a
//! listener may call the database, and even close it.

use super::event::Event;
use crate::platform::Runtime;
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Maximum number of queued events. Beyond, the newest are dropped and counted.
const QUEUED_MAX: usize = 1024;

/// The function of the program.
#[derive(Clone)]
pub struct Listener(pub Arc<dyn Fn(&Event) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// The engine's side of the queue. Empty without a listener.
#[derive(Debug, Default)]
pub struct Events(Option<Arc<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    lost: u64,
    is_over: bool,
}

impl Events {
    /// Starts the delivery thread. If that fails, there are no events.
    pub fn new(listener: Option<Listener>, runtime: &dyn Runtime) -> Events {
        let Some(listener) = listener else { return Events(None) };
        let queue = Arc::new(Queue::default());
        let delivered = Arc::clone(&queue);
        match runtime.spawn("braiddb-events", Box::new(move || delivered.deliver(&listener))) {
            Ok(_) => Events(Some(queue)),
            Err(error) => {
                tracing::warn!(%error, "the thread that delivers events could not be started");
                Events(None)
            }
        }
    }

    /// Queues an event if there is a listener. The caller may hold any lock.
    pub fn emit(&self, event: impl FnOnce() -> Event) {
        let Some(queue) = &self.0 else { return };
        let event = event();
        let mut state = queue.state.lock();
        if state.events.len() < QUEUED_MAX {
            state.events.push_back(event);
        } else {
            state.lost += 1;
        }
        drop(state);
        queue.changed.notify_one();
    }

    /// Ends the thread after the queued events.
    pub fn end(&self) {
        let Some(queue) = &self.0 else { return };
        queue.state.lock().is_over = true;
        queue.changed.notify_one();
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    fn deliver(&self, listener: &Listener) {
        while let Some(events) = self.next() {
            for event in &events {
                // Unwind safe: the engine shares no state with the listener.
                if catch_unwind(AssertUnwindSafe(|| (listener.0)(event))).is_err() {
                    tracing::error!(?event, "a listener of events panicked");
                }
            }
        }
    }

    /// Waits for events; `None` at the end.
    fn next(&self) -> Option<VecDeque<Event>> {
        let mut state = self.state.lock();
        while state.events.is_empty() && !state.is_over {
            self.changed.wait(&mut state);
        }
        let mut events = std::mem::take(&mut state.events);
        let lost = std::mem::take(&mut state.lost);
        if lost > 0 {
            events.push_back(Event::Lost { count: lost });
        }
        (!events.is_empty()).then_some(events)
    }
}
