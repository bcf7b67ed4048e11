//! Flushes and merges that write no faster than a [`RateLimiter`](crate::platform::RateLimiter) lets them, and merges that take no more of the time
//! than they must where there are few processors.

use crate::{
    db::engine::{core::Core, settings::Settings},
    platform::{Hurry, LimitedVfs, Limits, Pace, PacedVfs, Urgency, Vfs},
    table::{Demand, TableContext, UnbufferedTables},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// What limited work writes its files by.
#[derive(Debug)]
pub struct LimitedWork {
    flushes: TableContext,
    merges: TableContext,
    limits: Option<Limits>,
    /// What share of the time merges take, where they have to share processors with the program.
    pace: Option<Arc<Pace>>,
}

impl LimitedWork {
    /// None if nothing is limited.
    pub fn new(settings: &Settings, table: &TableContext) -> Option<LimitedWork> {
        let (limits, pace) = (limits(settings), pace(settings));
        if limits.is_none() && pace.is_none() {
            return None;
        }
        let limited = |vfs: &Arc<dyn Vfs>, urgency| match &limits {
            Some(limits) => Arc::new(LimitedVfs::limiting(vfs, Limits { urgency, ..limits.clone() })),
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

    /// Waits until a merge may write so many bytes in another way than by a new table.
    pub fn wait(&self, bytes: u64) {
        if let Some(limits) = &self.limits {
            limits.wait(bytes);
        }
    }

    /// Notes how long a user waited for the device.
    pub fn note_latency(&self, ns: u64) {
        if let Some(limits) = &self.limits {
            limits.limiter.note_latency(ns);
        }
    }

    /// Whether that matters.
    pub fn goes_by_latency(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.limiter.goes_by_latency())
    }
}

/// At what pace tables are merged, where not each thread can have a processor: one of the program's, one that flushes, and all that merge. A limit of
/// bytes is a pace already.
fn pace(settings: &Settings) -> Option<Arc<Pace>> {
    let wanted = 2 + settings.background_threads;
    let is_short = settings.runtime.shared_processors().is_some_and(|processors| processors < wanted);
    let has_pace = is_short && settings.background_threads > 0 && settings.rate_limiter.is_none();
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

/// The files of a database, timed if its limiter goes by that.
pub fn timed(vfs: Arc<dyn Vfs>, settings: &Settings) -> Arc<dyn Vfs> {
    match limits(settings).filter(|limits| limits.limiter.goes_by_latency()) {
        Some(limits) => Arc::new(LimitedVfs::timing(&vfs, limits)),
        None => vfs,
    }
}

impl Core {
    /// Nobody waits for the limit from now on, and no merge pauses: the database is to be closed, which may flush.
    pub fn release_limited_work(&self) {
        if let Some(limits) = self.limited.as_ref().and_then(|limited| limited.limits.as_ref()) {
            limits.released.store(true, Ordering::Release);
        }
        if let Some(pace) = self.pace() {
            pace.release();
        }
    }

    fn pace(&self) -> Option<&Arc<Pace>> {
        self.limited.as_ref()?.pace.as_ref()
    }

    /// Sets the pace of merges: a share of the time, in thousandths.
    pub(in crate::db) fn set_pace(&self, per_mille: u64) {
        if let Some(pace) = self.pace() {
            pace.set_share(per_mille);
        }
    }

    /// Whether a merge may begin beside so many others.
    pub(in crate::db) fn may_begin_merge(&self, others: usize) -> bool {
        self.pace().is_none_or(|pace| pace.may_begin(others))
    }

    /// Merges take all of the time until what this gives is let go of.
    pub(in crate::db) fn hurry(&self) -> Option<Hurry> {
        self.pace().map(Pace::hurry)
    }

    /// What new tables are written by.
    pub(in crate::db) fn table_for(&self, urgency: Urgency) -> &TableContext {
        match (&self.limited, urgency) {
            (None, _) => &self.table,
            (Some(limited), Urgency::Flush) => &limited.flushes,
            (Some(limited), Urgency::Merge) => &limited.merges,
        }
    }
}

/// What tables need of the database.
pub(in crate::db) fn table_context(settings: &Settings) -> TableContext {
    let vfs = Arc::clone(&settings.vfs);
    TableContext {
        vfs: timed(if settings.direct_io { Arc::new(UnbufferedTables::new(vfs)) } else { vfs }, settings),
        cache: Arc::clone(&settings.common().cache),
        demand: Arc::new(Demand::new(settings.hash_index_after)),
        runtime: Arc::clone(&settings.runtime),
        in_place: settings.read_in_place,
        lately: Arc::default(),
        new_filters: Arc::default(),
        disposal: Arc::default(),
    }
}
