//! Records commits that took long, with their causes.
//!
//! A commit below the threshold costs two reads of a clock and no shared write. Its parts are timed
//! only where it has to wait. The leader of a group notes what its group waited for as a [`Delay`]:
//! the members take their share from it, and commits behind the group find it by time.
//!
//! **Threads.** Any thread may call any function. The locks are leaves, taken for slow commits and
//! delayed groups only.

use super::report::{BackgroundWork, CommitParts, RunningWork, SlowCause, SlowCommit, SlowCommitTotal};
use crate::platform::Runtime;
use parking_lot::Mutex;
use std::{collections::VecDeque, time::Duration};

/// Slow commits and delays that are kept.
const KEPT_MAX: usize = 64;

/// Thresholds from this one on are measured by the coarse clock, which may be 10 ms late.
const COARSE_NS_MIN: u64 = 50_000_000;

/// Minimum time between two lines in the log.
const LOGGED_EVERY_NS: u64 = 1_000_000_000;

#[derive(Debug)]
pub struct SlowCommits {
    threshold_ns: u64,
    recorded: Mutex<Recorded>,
    delays: Mutex<Delays>,
    running: Mutex<Vec<Running>>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// Oldest first.
    commits: VecDeque<SlowCommit>,
    totals: [Total; SlowCause::ALL.len()],
    /// Not before this time, the next line in the log.
    logs_at_ns: u64,
    unlogged: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Total {
    commits: u64,
    part_ns: u64,
}

#[derive(Debug, Default)]
struct Delays {
    kept: VecDeque<Delay>,
    last: u64,
}

/// A delay of a commit group, noted by its leader.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    number: u64,
    /// By the exact clock.
    began_ns: u64,
    ended_ns: u64,
    pub parts: CommitParts,
    pub background: Option<RunningWork>,
}

impl Delay {
    pub fn number(&self) -> u64 {
        self.number
    }
}

#[derive(Clone, Copy, Debug)]
struct Running {
    work: BackgroundWork,
    began_ns: u64,
}

impl SlowCommits {
    /// `u64::MAX`: records none.
    pub fn new(threshold_ns: u64) -> SlowCommits {
        SlowCommits { threshold_ns, recorded: Mutex::default(), delays: Mutex::default(), running: Mutex::default() }
    }

    /// Reads the clock for a commit's time.
    #[inline(always)]
    pub fn now_ns(&self, runtime: &dyn Runtime) -> u64 {
        match self.threshold_ns {
            u64::MAX => 0,
            COARSE_NS_MIN.. => runtime.monotonic_coarse_ns(),
            _ => runtime.monotonic_ns(),
        }
    }

    #[inline(always)]
    pub fn is_slow(&self, took_ns: u64) -> bool {
        took_ns >= self.threshold_ns
    }

    /// Returns the number of the delay, never 0.
    pub fn note_delay(&self, ended_ns: u64, parts: CommitParts, background: Option<RunningWork>) -> u64 {
        let mut delays = self.delays.lock();
        delays.last += 1;
        let (number, began_ns) = (delays.last, ended_ns.saturating_sub(parts.total_ns()));
        if delays.kept.len() == KEPT_MAX {
            delays.kept.pop_front();
        }
        delays.kept.push_back(Delay { number, began_ns, ended_ns, parts, background });
        number
    }

    pub fn delay(&self, number: u64) -> Option<Delay> {
        self.delays.lock().kept.iter().rev().find(|delay| delay.number == number).copied()
    }

    /// Returns the last delay that ended in this time.
    pub fn last_delay(&self, began_ns: u64, ended_ns: u64) -> Option<Delay> {
        let delays = self.delays.lock();
        let within = |delay: &&Delay| (began_ns..=ended_ns).contains(&delay.ended_ns);
        delays.kept.iter().rev().find(within).copied()
    }

    /// Returns the longest part of the delays in this time, except the one with this number.
    pub fn longest_delay(&self, began_ns: u64, ended_ns: u64, except: Option<u64>) -> Option<SlowCause> {
        let mut sum = CommitParts::default();
        for delay in self.delays.lock().kept.iter().filter(|delay| Some(delay.number) != except) {
            let overlap_ns = delay.ended_ns.min(ended_ns).saturating_sub(delay.began_ns.max(began_ns));
            for (part, took) in delay.parts.longest_first() {
                sum.add(part, overlap_ns.min(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)));
            }
        }
        sum.longest()
    }

    /// Records a slow commit. Returns true if it is to be logged, and how many others were not.
    pub fn record(&self, commit: SlowCommit, now_ns: u64) -> (bool, u64) {
        let mut recorded = self.recorded.lock();
        recorded.totals[commit.cause as usize].commits += 1;
        for part in SlowCause::ALL {
            recorded.totals[part as usize].part_ns += commit.parts.ns(part);
        }
        if recorded.commits.len() == KEPT_MAX {
            recorded.commits.pop_front();
        }
        recorded.commits.push_back(commit);
        let is_due = now_ns >= recorded.logs_at_ns;
        if is_due {
            recorded.logs_at_ns = now_ns + LOGGED_EVERY_NS;
            return (true, std::mem::take(&mut recorded.unlogged));
        }
        recorded.unlogged += 1;
        (false, 0)
    }

    /// Returns the last slow commits, oldest first.
    pub fn commits(&self) -> Vec<SlowCommit> {
        self.recorded.lock().commits.iter().cloned().collect()
    }

    pub fn totals(&self) -> Vec<SlowCommitTotal> {
        let totals = self.recorded.lock().totals;
        let total = |cause: SlowCause| {
            let Total { commits, part_ns } = totals[cause as usize];
            SlowCommitTotal { cause, commits, part_us: part_ns / 1000 }
        };
        SlowCause::ALL.into_iter().map(total).collect()
    }

    /// Notes that background work runs until the guard is dropped.
    pub fn run(&self, work: BackgroundWork, now_ns: u64) -> RunningGuard<'_> {
        let began_ns = now_ns;
        self.running.lock().push(Running { work, began_ns });
        RunningGuard { slow: self, work }
    }

    /// Returns all running work, the oldest first.
    pub fn all_running(&self, now_ns: u64) -> Vec<RunningWork> {
        let mut running = self.running.lock().clone();
        running.sort_by_key(|running| running.began_ns);
        let ran_for = |began_ns| Duration::from_nanos(now_ns.saturating_sub(began_ns));
        running.iter().map(|running| RunningWork { work: running.work, ran_for: ran_for(running.began_ns) }).collect()
    }

    /// Returns the running work that `is_wanted`, the one of `partition` first, then the oldest.
    pub fn running(
        &self,
        now_ns: u64,
        partition: Option<u64>,
        is_wanted: impl Fn(&BackgroundWork) -> bool,
    ) -> Option<RunningWork> {
        let is_there = |work: &BackgroundWork| match work {
            BackgroundWork::Flush => false,
            BackgroundWork::Merge { partition: of, .. } => Some(*of) == partition,
        };
        let running = self.running.lock();
        let wanted = running.iter().filter(|running| is_wanted(&running.work));
        let first = wanted.min_by_key(|running| (!is_there(&running.work), running.began_ns))?;
        let ran_for = Duration::from_nanos(now_ns.saturating_sub(first.began_ns));
        Some(RunningWork { work: first.work, ran_for })
    }
}

/// Ends a note of [`SlowCommits::run`].
#[must_use]
#[derive(Debug)]
pub struct RunningGuard<'a> {
    slow: &'a SlowCommits,
    work: BackgroundWork,
}

impl Drop for RunningGuard<'_> {
    fn drop(&mut self) {
        let mut running = self.slow.running.lock();
        if let Some(at) = running.iter().position(|running| running.work == self.work) {
            running.swap_remove(at);
        }
    }
}
