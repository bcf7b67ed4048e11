//! Times a commit, and records it if it was slow: see `recorder.rs`.

use super::{
    recorder::Delay,
    report::{CommitParts, RunningWork, SlowCause, SlowCommit},
};
use crate::{
    base::{Result, SequenceNumber},
    db::engine::{events::event::Event, root::Engine},
    platform::moment_of,
};
use std::time::Duration;

/// The time of one commit, in the thread that makes it.
#[derive(Clone, Debug)]
pub struct CommitTimer {
    began_ns: u64,
    waits_since_ns: u64,
    /// Only of commits that waited, to keep others fast.
    waits: Option<Box<Waits>>,
    /// The delay of its group; 0 without one.
    pub delay: u64,
    /// Its own thread committed its group.
    pub has_led: bool,
    pub records: usize,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Waits {
    parts: CommitParts,
    background: Option<RunningWork>,
}

impl CommitTimer {
    #[inline(always)]
    pub fn begin(engine: &Engine) -> CommitTimer {
        CommitTimer {
            began_ns: engine.commits.slow.now_ns(&*engine.settings.runtime),
            waits_since_ns: 0,
            waits: None,
            delay: 0,
            has_led: false,
            records: 0,
            bytes: 0,
        }
    }

    #[inline]
    pub fn add(&mut self, part: SlowCause, ns: u64) {
        if ns > 0 {
            self.waits_mut().parts.add(part, ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn waits_mut(&mut self) -> &mut Waits {
        self.waits.get_or_insert_default()
    }

    /// Times a part by the clock of the whole.
    #[inline]
    pub fn time<R>(&mut self, engine: &Engine, part: SlowCause, work: impl FnOnce() -> R) -> R {
        let now_ns = || engine.commits.slow.now_ns(&*engine.settings.runtime);
        let began_ns = now_ns();
        let done = work();
        self.add(part, now_ns().saturating_sub(began_ns));
        done
    }

    /// Begins the wait of an asynchronous commit for its sync.
    pub fn begin_wait(&mut self, engine: &Engine) {
        self.waits_since_ns = engine.commits.slow.now_ns(&*engine.settings.runtime);
    }

    /// Ends an asynchronous commit.
    pub fn end_wait(&self, engine: &Engine, durable: &Result<SequenceNumber>) {
        let slow = &engine.commits.slow;
        let now_ns = slow.now_ns(&*engine.settings.runtime);
        let took_ns = now_ns.saturating_sub(self.began_ns);
        if slow.is_slow(took_ns) {
            let mut timer = self.clone();
            timer.add(SlowCause::Sync, now_ns.saturating_sub(self.waits_since_ns));
            timer.record(engine, took_ns, durable.as_ref().ok().copied());
        }
    }

    pub fn note_background(&mut self, background: Option<RunningWork>) {
        let waits = self.waits_mut();
        waits.background = waits.background.or(background);
    }

    /// Ends the commit.
    #[inline(always)]
    pub fn end(&self, engine: &Engine, committed: &Result<SequenceNumber>) {
        let slow = &engine.commits.slow;
        let took_ns = slow.now_ns(&*engine.settings.runtime).saturating_sub(self.began_ns);
        if slow.is_slow(took_ns) {
            self.record(engine, took_ns, committed.as_ref().ok().copied());
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, engine: &Engine, took_ns: u64, sequence: Option<SequenceNumber>) {
        let slow = &engine.commits.slow;
        // Delays have times of the exact clock.
        let ended_ns = engine.now_ns();
        let began_ns = ended_ns.saturating_sub(took_ns);
        let Waits { mut parts, mut background } = self.waits.as_deref().cloned().unwrap_or_default();
        let own = match (self.delay, sequence) {
            (0, Some(_)) => None,
            // An error does not carry the number.
            (0, None) => slow.last_delay(began_ns, ended_ns),
            (number, _) => slow.delay(number),
        };
        if let Some(Delay { parts: of_group, background: of_delay, .. }) = own {
            for part in SlowCause::ALL {
                match self.has_led {
                    true => parts.add(part, of_group.ns(part)),
                    // The member waited in the queue meanwhile.
                    false => parts.shift(SlowCause::Queue, part, of_group.ns(part)),
                }
            }
            background = background.or(of_delay);
        }
        // The coarse clock may miss some of it.
        let took_ns = took_ns.max(parts.total_ns());
        parts.add(SlowCause::Write, took_ns - parts.total_ns());
        let cause = parts.longest().unwrap_or(SlowCause::Write);
        let behind = (parts.ns(SlowCause::Queue) > 0)
            .then(|| slow.longest_delay(began_ns, ended_ns, own.map(|delay| delay.number())));
        let commit = SlowCommit {
            ended: moment_of(engine.settings.runtime.unix_time_us()),
            took: Duration::from_nanos(took_ns),
            cause,
            parts,
            behind: behind.flatten(),
            background,
            records: self.records as u64,
            bytes: self.bytes,
            sequence,
        };
        engine.events.emit(|| Event::SlowCommit(commit.clone()));
        let shown = commit.clone();
        if let (true, others) = slow.record(commit, ended_ns) {
            tracing::info!(cause = shown.cause.name(), others, "{shown}");
        }
    }
}
