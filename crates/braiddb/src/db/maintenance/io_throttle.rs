//! Limits the write rate of flushes and merges by a [`RateLimiter`](crate::platform::RateLimiter),
//! and the CPU time of merges where processors are few.

use crate::{
    db::engine::{parts::limited_work::timed, root::Engine, settings::Settings},
    platform::{Hurry, Pace, Urgency},
    table::{IndexTrigger, TableContext, UnbufferedTables},
};
use std::sync::{Arc, atomic::Ordering};

/// Ends all throttling before a close, which may flush.
pub fn release(engine: &Engine) {
    if let Some(limits) = engine.storage.limited.as_ref().and_then(|limited| limited.limits.as_ref()) {
        limits.released.store(true, Ordering::Release);
    }
    if let Some(pace) = engine.storage.pace() {
        pace.release();
    }
}

pub(in crate::db) fn may_begin_merge(engine: &Engine, others: usize) -> bool {
    engine.storage.pace().is_none_or(|pace| pace.may_begin(others))
}

/// Lifts the pace of merges until the guard is dropped.
pub(in crate::db) fn hurry(engine: &Engine) -> Option<Hurry> {
    engine.storage.pace().map(Pace::hurry)
}

pub(in crate::db) fn table_for(engine: &Engine, urgency: Urgency) -> &TableContext {
    match (&engine.storage.limited, urgency) {
        (None, _) => &engine.storage.table,
        (Some(limited), Urgency::Flush) => &limited.flushes,
        (Some(limited), Urgency::Merge) => &limited.merges,
    }
}

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
