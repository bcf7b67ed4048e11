//! Flushes and merges that write no faster than a [`RateLimiter`](crate::platform::RateLimiter) lets them, and merges that take no more of the time
//! than they must where there are few processors.

use crate::{
    db::engine::{parts::limited_work::timed, root::Engine, settings::Settings},
    platform::{Hurry, Pace, Urgency},
    table::{IndexTrigger, TableContext, UnbufferedTables},
};
use std::sync::{Arc, atomic::Ordering};

impl Engine {
    /// Nobody waits for the limit from now on, and no merge pauses: the database is to be closed, which may flush.
    pub fn release_limited_work(&self) {
        if let Some(limits) = self.storage.limited.as_ref().and_then(|limited| limited.limits.as_ref()) {
            limits.released.store(true, Ordering::Release);
        }
        if let Some(pace) = self.pace() {
            pace.release();
        }
    }

    fn pace(&self) -> Option<&Arc<Pace>> {
        self.storage.limited.as_ref()?.pace.as_ref()
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
        match (&self.storage.limited, urgency) {
            (None, _) => &self.storage.table,
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
        trigger: Arc::new(IndexTrigger::new(settings.hash_index_after)),
        runtime: Arc::clone(&settings.runtime),
        in_place: settings.read_in_place,
        recent_writes: Arc::default(),
        new_filters: Arc::default(),
        deferred_close: Arc::default(),
    }
}
