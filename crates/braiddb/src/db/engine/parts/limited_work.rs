//! Throttled file systems of flushes and merges.

use crate::{
    db::engine::settings::Settings,
    platform::{Limits, Pace, PacedVfs, ThrottledVfs, Urgency, Vfs},
    table::TableContext,
};
use std::sync::{Arc, atomic::AtomicBool};

#[derive(Debug)]
pub struct LimitedWork {
    pub(in crate::db) flushes: TableContext,
    pub(in crate::db) merges: TableContext,
    pub(in crate::db) limits: Option<Limits>,
    /// The share of the time that merges may take, if processors are short.
    pub(in crate::db) pace: Option<Arc<Pace>>,
}

impl LimitedWork {
    pub fn new(settings: &Settings, table: &TableContext) -> Option<LimitedWork> {
        let (limits, pace) = (limits(settings), pace(settings));
        if limits.is_none() && pace.is_none() {
            return None;
        }
        let limited = |vfs: &Arc<dyn Vfs>, urgency| match &limits {
            Some(limits) => Arc::new(ThrottledVfs::throttling(vfs, Limits { urgency, ..limits.clone() })),
            None => Arc::clone(vfs),
        };
        let paced = match &pace {
            Some(pace) => Arc::new(PacedVfs::new(&table.vfs, Arc::clone(pace))),
            None => Arc::clone(&table.vfs),
        };
        let flushes = TableContext { vfs: limited(&table.vfs, Urgency::Flush), ..table.clone() };
        let merges = TableContext { vfs: limited(&paced, Urgency::Merge), ..table.clone() };
        Some(LimitedWork { flushes, merges, limits, pace })
    }

    /// Waits until a merge may write `bytes` outside a new table.
    pub fn wait(&self, bytes: u64) {
        if let Some(limits) = &self.limits {
            limits.wait(bytes);
        }
    }

    pub fn note_latency(&self, ns: u64) {
        if let Some(limits) = &self.limits {
            limits.limiter.note_latency(ns);
        }
    }

    pub fn goes_by_latency(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.limiter.goes_by_latency())
    }
}

/// Throttles merges if there are fewer processors than threads: one of the application, one that
/// flushes, and the merge threads. A rate limiter takes its place.
fn pace(settings: &Settings) -> Option<Arc<Pace>> {
    let wanted = 2 + settings.background_threads;
    // Asked last: it reads several files.
    let is_short = || settings.runtime.shared_processors().is_some_and(|processors| processors < wanted);
    let may_merge = !settings.read_only && settings.background_threads > 0;
    let has_pace = may_merge && settings.rate_limiter.is_none() && is_short();
    has_pace.then(|| Arc::new(Pace::new(Arc::clone(&settings.runtime))))
}

fn limits(settings: &Settings) -> Option<Limits> {
    Some(Limits {
        limiter: Arc::clone(settings.rate_limiter.as_ref()?),
        runtime: Arc::clone(&settings.runtime),
        released: Arc::new(AtomicBool::new(false)),
        urgency: Urgency::Merge,
    })
}

pub fn timed(vfs: Arc<dyn Vfs>, settings: &Settings) -> Arc<dyn Vfs> {
    match limits(settings).filter(|limits| limits.limiter.goes_by_latency()) {
        Some(limits) => Arc::new(ThrottledVfs::timing(&vfs, limits)),
        None => vfs,
    }
}
