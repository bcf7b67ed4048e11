//! Long-lived readers: reporting and expiry.
//!
//! A reader (snapshot, cursor, iterator or transaction, with its derivatives) pins the versions
//! visible at its sequence number, so space does not come back. About once a second a background
//! thread, or commits if there is none, checks for old readers; so do flushes and compactions.
//! Readers older than one limit are logged once; those older than another expire.
//! [`crate::commit::SnapshotList`] explains why this is safe.

use crate::{
    base::SequenceNumber,
    commit::Seen,
    db::engine::{events::event::Event, parts::maintenance::WorkState, root::Engine, stats::ReaderStats},
};
use std::{sync::atomic::Ordering, time::Duration};

/// Maximum readers listed in [`crate::db::engine::stats::Stats`], and maximum expired ones.
const LISTED_MAX: usize = 8;

/// Check interval; with a short limit, 1/8 of the limit.
const LOOK_NS: u64 = 1_000_000_000;
const LOOKS_PER_LIMIT: u64 = 8;

#[derive(Debug, Default)]
pub struct ReaderSummary {
    pub count: usize,
    pub oldest: Option<SequenceNumber>,
    pub oldest_age_us: Option<u64>,
    pub dead_held: u64,
    pub overstaying: Vec<ReaderStats>,
}

pub fn check_if_due(engine: &Engine) {
    if engine.coarse_now_ns() >= engine.readers.next_reader_check_ns.load(Ordering::Relaxed) {
        check(engine);
    }
}

/// Logs old readers and expires those beyond the limit. Time is proportional to the number of
/// old readers.
pub fn check(engine: &Engine) {
    let (warn_ns, max_ns) = (engine.settings.reader_age_warn_ns, engine.settings.reader_age_max_ns);
    let now_ns = engine.coarse_now_ns();
    let pause_ns = (warn_ns.min(max_ns) / LOOKS_PER_LIMIT).min(LOOK_NS);
    engine.readers.next_reader_check_ns.store(now_ns.saturating_add(pause_ns), Ordering::Relaxed);
    let looked = engine.readers.snapshots.check_ages(now_ns, warn_ns, max_ns);
    if !looked.overstaying.is_empty() {
        let strata = engine.readers.snapshots.strata();
        for seen in &looked.overstaying {
            let dead = dead_held(&engine.maintenance.work.lock(), &strata, Some(seen.sequence));
            let ReaderStats { kind, sequence, age_us, commits_behind, .. } = reader_stats(engine, seen, now_ns, dead);
            let (age_s, dead_entries) = (age_us / 1_000_000, dead);
            let age = Duration::from_micros(age_us);
            engine.events.emit(|| Event::ReaderOverstays { kind, sequence, age });
            tracing::warn!(
                %kind, sequence, age_s, commits_behind, dead_entries,
                "a reader has been in use for long; what was overwritten since it began cannot be removed"
            );
        }
    }
    for seen in &looked.expired {
        let ReaderStats { kind, sequence, age_us, commits_behind, .. } = reader_stats(engine, seen, now_ns, 0);
        let age_s = age_us / 1_000_000;
        let age = Duration::from_micros(age_us);
        engine.events.emit(|| Event::ReaderExpired { kind, sequence, age });
        tracing::warn!(%kind, sequence, age_s, commits_behind, "a reader has expired; its next read fails");
    }
    if !looked.expired.is_empty() {
        engine.counters.readers_expired.fetch_add(looked.expired.len() as u64, Ordering::Relaxed);
        // Versions that they pinned can now be merged away.
        engine.signal_work();
    }
}

fn reader_stats(engine: &Engine, seen: &Seen, now_ns: u64, dead_entries_held: u64) -> ReaderStats {
    ReaderStats {
        kind: seen.kind,
        sequence: seen.sequence,
        age_us: now_ns.saturating_sub(seen.taken_ns) / 1000,
        commits_behind: engine.readers.snapshots.visible().saturating_sub(seen.sequence),
        dead_entries_held,
        is_expired: seen.is_expired,
    }
}

pub fn summary(engine: &Engine) -> ReaderSummary {
    let now_ns = engine.coarse_now_ns();
    let (count, oldest) = engine.readers.snapshots.in_use();
    let old = match now_ns.checked_sub(engine.settings.reader_age_warn_ns) {
        Some(taken_before_ns) => engine.readers.snapshots.oldest(taken_before_ns, LISTED_MAX),
        None => Vec::new(),
    };
    let strata = engine.readers.snapshots.strata();
    let work = engine.maintenance.work.lock();
    let stats_of = |seen: &Seen| {
        let dead = if seen.is_expired { 0 } else { dead_held(&work, &strata, Some(seen.sequence)) };
        reader_stats(engine, seen, now_ns, dead)
    };
    ReaderSummary {
        count,
        oldest: oldest.map(|seen| seen.sequence),
        oldest_age_us: oldest.map(|seen| now_ns.saturating_sub(seen.taken_ns) / 1000),
        dead_held: dead_held(&work, &strata, None),
        overstaying: old.iter().map(stats_of).collect(),
    }
}

/// Counts the garbage entries that the last full merges kept for readers that still exist, or for
/// `reader`, perhaps with others.
fn dead_held(work: &WorkState, strata: &[SequenceNumber], reader: Option<SequenceNumber>) -> u64 {
    let is_held = |(_, kept): &&(u64, Vec<SequenceNumber>)| {
        // The last one was the latest commit then; it keeps no garbage.
        let Some((_, readers)) = kept.split_last() else { return false };
        let are_there = !readers.is_empty() && readers.iter().all(|s| strata.binary_search(s).is_ok());
        are_there && reader.is_none_or(|reader| readers.binary_search(&reader).is_ok())
    };
    work.held.values().filter(is_held).map(|(dead, _)| dead).sum()
}
