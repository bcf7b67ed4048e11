//! Flushes and merges that write no faster than a [`RateLimiter`](crate::platform::RateLimiter) lets them.

use super::{core::Core, settings::Settings};
use crate::{
    platform::{LimitedVfs, Limits, Urgency, Vfs},
    table::TableContext,
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
    limits: Limits,
}

impl LimitedWork {
    /// None if nothing is limited.
    pub fn new(settings: &Settings, table: &TableContext) -> Option<LimitedWork> {
        let limits = limits(settings)?;
        let table_for = |urgency| {
            let vfs = LimitedVfs::limiting(&table.vfs, Limits { urgency, ..limits.clone() });
            TableContext { vfs: Arc::new(vfs), ..table.clone() }
        };
        let (flushes, merges) = (table_for(Urgency::Flush), table_for(Urgency::Merge));
        Some(LimitedWork { flushes, merges, limits })
    }

    /// Waits until a merge may write so many bytes in another way than by a new table.
    pub fn wait(&self, bytes: u64) {
        self.limits.wait(bytes);
    }

    /// Notes how long a user waited for the device.
    pub fn note_latency(&self, ns: u64) {
        self.limits.limiter.note_latency(ns);
    }

    /// Whether that matters.
    pub fn goes_by_latency(&self) -> bool {
        self.limits.limiter.goes_by_latency()
    }
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
    /// Nobody waits for the limit from now on: the database is to be closed, which may flush.
    pub fn release_limited_work(&self) {
        if let Some(limited) = &self.limited {
            limited.limits.released.store(true, Ordering::Release);
        }
    }

    /// What new tables are written by.
    pub(super) fn table_for(&self, urgency: Urgency) -> &TableContext {
        match (&self.limited, urgency) {
            (None, _) => &self.table,
            (Some(limited), Urgency::Flush) => &limited.flushes,
            (Some(limited), Urgency::Merge) => &limited.merges,
        }
    }
}
