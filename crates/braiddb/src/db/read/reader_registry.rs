//! Readers that stay for too long: who they are, what they hold back, and how they are made to go.
//!
//! A reader is a snapshot, a cursor, an iterator or a transaction, with all that was made of it. It holds one sequence number, and
//! with that all versions that were newest then. What that costs depends on what is written meanwhile; who forgets to let
//! go of one notices only that space does not come back. So readers are looked at about once a second by a background thread (where
//! there is none, by commits), and by whoever flushes or compacts: those that are older than one limit are named, once each, and those
//! older than another expire. How that stays safe is told at [`crate::commit::SnapshotList`].

use crate::{
    base::{Error, ReaderKind, Result, SequenceNumber},
    commit::{Held, Seen},
    db::engine::{clock::Moment, parts::maintenance::WorkState, root::Engine, stats::ReaderStats},
};
use std::{sync::atomic::Ordering, time::Duration};

/// How many readers [`crate::db::engine::stats::Stats`] lists at most, and as many that have expired.
const LISTED_MAX: usize = 8;

/// Readers are looked at so often, or more often where a limit is short: about so many times before it is reached.
const LOOK_NS: u64 = 1_000_000_000;
const LOOKS_PER_LIMIT: u64 = 8;

/// What the statistics say of readers.
#[derive(Debug, Default)]
pub struct ReaderSummary {
    pub count: usize,
    pub oldest: Option<SequenceNumber>,
    pub oldest_age_us: Option<u64>,
    pub dead_held: u64,
    pub overstaying: Vec<ReaderStats>,
}

impl Engine {
    /// The present moment.
    #[inline]
    pub fn now(&self) -> Moment {
        self.clock.now(&*self.settings.runtime)
    }

    /// The clock by which readers grow old.
    #[inline]
    pub fn coarse_now_ns(&self) -> u64 {
        self.settings.runtime.monotonic_coarse_ns()
    }

    /// Fails if a reader has expired. The state that is to be read from must have been loaded before.
    #[inline]
    pub fn check_held(&self, held: &Held) -> Result<()> {
        if self.readers.snapshots.is_expired(held) { Err(self.expired(held)) } else { Ok(()) }
    }

    #[cold]
    fn expired(&self, held: &Held) -> Error {
        Error::ReaderExpired {
            kind: self.readers.snapshots.kind_of(held).unwrap_or(ReaderKind::Snapshot),
            sequence: held.sequence,
            age: Duration::from_nanos(self.coarse_now_ns().saturating_sub(held.taken_ns)),
        }
    }

    /// Looks at the readers if that was not done lately.
    pub fn look_at_readers_if_due(&self) {
        if self.coarse_now_ns() >= self.readers.next_reader_look_ns.load(Ordering::Relaxed) {
            self.look_at_readers();
        }
    }

    /// Tells of readers that have grown old, and has those expire that are too old. Takes time in proportion to how many
    /// have grown old.
    pub fn look_at_readers(&self) {
        let (warn_ns, max_ns) = (self.settings.reader_age_warn_ns, self.settings.reader_age_max_ns);
        let now_ns = self.coarse_now_ns();
        let pause_ns = (warn_ns.min(max_ns) / LOOKS_PER_LIMIT).min(LOOK_NS);
        self.readers.next_reader_look_ns.store(now_ns.saturating_add(pause_ns), Ordering::Relaxed);
        let looked = self.readers.snapshots.look(now_ns, warn_ns, max_ns);
        if !looked.overstaying.is_empty() {
            let strata = self.readers.snapshots.strata();
            for seen in &looked.overstaying {
                let dead = dead_held(&self.maintenance.work.lock(), &strata, Some(seen.sequence));
                let ReaderStats { kind, sequence, age_us, commits_behind, .. } = self.reader_stats(seen, now_ns, dead);
                let (age_s, dead_entries) = (age_us / 1_000_000, dead);
                tracing::warn!(
                    %kind, sequence, age_s, commits_behind, dead_entries,
                    "a reader has been in use for long; what was overwritten since it began cannot be removed"
                );
            }
        }
        for seen in &looked.expired {
            let ReaderStats { kind, sequence, age_us, commits_behind, .. } = self.reader_stats(seen, now_ns, 0);
            let age_s = age_us / 1_000_000;
            tracing::warn!(%kind, sequence, age_s, commits_behind, "a reader has expired; its next read fails");
        }
        if !looked.expired.is_empty() {
            self.counters.readers_expired.fetch_add(looked.expired.len() as u64, Ordering::Relaxed);
            // What they held can be merged away.
            self.signal_work();
        }
    }

    fn reader_stats(&self, seen: &Seen, now_ns: u64, dead_entries_held: u64) -> ReaderStats {
        ReaderStats {
            kind: seen.kind,
            sequence: seen.sequence,
            age_us: now_ns.saturating_sub(seen.taken_ns) / 1000,
            commits_behind: self.readers.snapshots.visible().saturating_sub(seen.sequence),
            dead_entries_held,
            is_expired: seen.is_expired,
        }
    }

    /// What the statistics say of readers now.
    pub fn reader_summary(&self) -> ReaderSummary {
        let now_ns = self.coarse_now_ns();
        let (count, oldest) = self.readers.snapshots.in_use();
        let old = match now_ns.checked_sub(self.settings.reader_age_warn_ns) {
            Some(taken_before_ns) => self.readers.snapshots.oldest(taken_before_ns, LISTED_MAX),
            None => Vec::new(),
        };
        let strata = self.readers.snapshots.strata();
        let work = self.maintenance.work.lock();
        let stats_of = |seen: &Seen| {
            let dead = if seen.is_expired { 0 } else { dead_held(&work, &strata, Some(seen.sequence)) };
            self.reader_stats(seen, now_ns, dead)
        };
        ReaderSummary {
            count,
            oldest: oldest.map(|seen| seen.sequence),
            oldest_age_us: oldest.map(|seen| now_ns.saturating_sub(seen.taken_ns) / 1000),
            dead_held: dead_held(&work, &strata, None),
            overstaying: old.iter().map(stats_of).collect(),
        }
    }
}

/// How many dead entries the last whole merges of partitions had to leave for readers that are still there; for one of them,
/// if one is given, with others perhaps.
fn dead_held(work: &WorkState, strata: &[SequenceNumber], reader: Option<SequenceNumber>) -> u64 {
    let is_held = |(_, kept): &&(u64, Vec<SequenceNumber>)| {
        // The last is what was visible then, for which nothing dead is kept.
        let Some((_, readers)) = kept.split_last() else { return false };
        let are_there = !readers.is_empty() && readers.iter().all(|s| strata.binary_search(s).is_ok());
        are_there && reader.is_none_or(|reader| readers.binary_search(&reader).is_ok())
    };
    work.held.values().filter(is_held).map(|(dead, _)| dead).sum()
}
