//! Calls from lower rooms into background work, on slow paths only.

use super::maintenance::WorkState;
use crate::{
    base::{Result, SequenceNumber},
    db::engine::{
        root::Engine,
        slow_commits::report::SlowCause,
        thread_pool::{JobResult, Role},
    },
    read::ReadState,
};

/// Background work as the lower rooms see it. A commit without background threads runs the jobs
/// itself, the first logged commit after commits without WAL flushes them, and a new read state is
/// measured. The open sets these functions once.
#[derive(Clone, Copy, Debug)]
pub struct Upcalls {
    /// Runs the jobs that are due, in the calling thread. Reports the time of each as part of a
    /// commit.
    pub run_inline: fn(&Engine, &mut dyn FnMut(SlowCause, u64)),
    /// Does at most one job of a role: see [`Worker`](crate::db::engine::thread_pool::Worker).
    pub run_job: fn(&Engine, Role, &dyn Fn()) -> JobResult,
    /// Flushes the frozen memtables that only have commits up to this one.
    pub flush: fn(&Engine, SequenceNumber) -> Result<()>,
    /// Returns the garbage relative to its limit, in per mille; 0 without a limit.
    pub garbage_to_limit: fn(&Engine, &ReadState, &WorkState) -> u64,
}
