//! Watches a database: waits for commits and returns their changes in order.
//!
//! Watchers read the log's files by themselves ([`crate::wal::LogReader`]). INVARIANT W1: a watcher
//! returns a commit only once it is visible and, by default, synced, so a crash never takes back a
//! returned commit.

use super::{
    change::{Change, ChangeSet, Gap},
    decode::{Decoder, Filter},
    names::Trees,
    options::{Start, WatchOptions},
    source::{Source, SourceState, check_reached},
    token::ResumeToken,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    commit::{Operation, decode_batch},
    db::{
        engine::{
            root::Engine,
            wal_notify::tasks::{SYNC_PAUSE_NS, WatchTask},
        },
        handles::database::Db,
        write::pipeline,
    },
    platform::UNIX_EPOCH,
    wal::{Gone, LogItem, LogReader, ReadError, RecordInfo},
};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Target bytes of log in memory; at least one commit group.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// Stops a watcher from any thread.
#[derive(Clone)]
pub struct WatchStopper {
    engine: Arc<Engine>,
    task: Arc<WatchTask>,
}

impl std::fmt::Debug for WatchStopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchStopper").finish_non_exhaustive()
    }
}

impl WatchStopper {
    /// Makes the watcher return `None` from all current and later calls.
    pub fn stop(&self) {
        self.task.is_stopped.store(true, Ordering::Release);
        self.engine.log.watches.wake_stopped(&self.task);
    }
}

#[derive(Debug)]
enum Pending {
    Group { info: RecordInfo, payload: Vec<u8>, at: usize, sequence: SequenceNumber },
    Missing { up_to: SequenceNumber },
}

impl Pending {
    fn sequence(&self) -> SequenceNumber {
        match self {
            Pending::Group { sequence, .. } => *sequence,
            Pending::Missing { up_to } => *up_to,
        }
    }
}

/// Returns commits in order: see [`Db::watch`]. Keeps the database open.
pub struct Watcher {
    db: Db,
    filter: Filter,
    is_unsynced: bool,
    source: Source,
    reader: LogReader,
    pending: VecDeque<Pending>,
    trees: Trees,
    delivered: SequenceNumber,
    token: ResumeToken,
    synced_at_ns: Option<u64>,
    pub(super) task: Arc<WatchTask>,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("filter", &self.filter).field("told", &self.delivered).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
enum Patience {
    None,
    UntilNs(u64),
    Endless,
}

impl Db {
    /// Returns every change in order, grouped by commit, from a commit or a token on.
    ///
    /// Changes are read from the log, which is kept as long as recovery needs it, and then as
    /// [`crate::Builder::log_retention`] says. Nothing is skipped: if the log lacks commits that
    /// the watcher needs, it returns [`Error::WatchTooOld`]. Commits without WAL appear as a
    /// [`Change::Gap`].
    ///
    /// Writers only wake waiting watchers; a slow watcher never delays them. It uses about 1 MiB of
    /// memory, or the size of the largest commit group, and pins one log segment.
    ///
    /// By default a commit is returned once it is synced; a watcher syncs the log if no other
    /// thread does. See [`WatchOptions::unsynced`]. A process that stores the token atomically with
    /// the effects of the changes processes each change exactly once.
    ///
    /// A read-only database returns only commits that its own state and the log have at this call.
    /// Another process that writes it may release files that the watcher needs: an error.
    ///
    /// Returns `InvalidArgument` if the token belongs to another database or incarnation, if the
    /// commits that its watcher saw were lost, or if the commit is above the last one. Reads the
    /// log once, front to back, from the segment that contains the start.
    ///
    /// ```
    /// # fn main() -> braiddb::Result<()> {
    /// use braiddb::watch::{Change, WatchOptions};
    ///
    /// let db = braiddb::Db::in_memory()?;
    /// let albums = db.tree("albums")?;
    /// let mut watcher = db.watch(WatchOptions::new().tree(&albums))?;
    /// albums.put(b"1", b"Ten")?;
    /// let Some(commit) = watcher.try_next()? else { panic!("it was committed") };
    /// assert!(matches!(&commit.changes[..], [Change::Put { key, value, .. }] if key == b"1" && value == b"Ten"));
    ///
    /// let kept: Vec<u8> = commit.token.to_bytes(); // store these, and later:
    /// albums.delete(b"1")?;
    /// let token = braiddb::watch::ResumeToken::from_bytes(&kept)?;
    /// let mut watcher = db.watch(WatchOptions::new().tree(&albums).resume(token))?;
    /// let Some(commit) = watcher.try_next()? else { panic!("it was committed") };
    /// assert!(matches!(&commit.changes[..], [Change::Delete { .. }]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self, options: WatchOptions) -> Result<Watcher> {
        Watcher::new(self, options)
    }
}

impl Watcher {
    fn new(db: &Db, options: WatchOptions) -> Result<Watcher> {
        let engine = db.engine();
        engine.health.check_open()?;
        let WatchOptions { filter, tree, start, is_unsynced } = options;
        if let Some(tree) = tree.filter(|tree| tree.home != engine.log.incarnation) {
            return Err(tree.another_database());
        }
        if filter.tree.is_none() && !filter.prefix.is_empty() {
            return Err(Error::InvalidArgument("a prefix of keys is of one tree: say which".to_owned()));
        }
        let source = Source::new(engine)?;
        let after = match start {
            Start::Now => None,
            Start::After(commit) => Some(pipeline::before_refused(engine, commit)),
            Start::Resume(token) => Some(source.check_token(&token)?),
            Start::Oldest => Some(source.floor()),
        };
        let visible = engine.readers.snapshots.visible();
        if let Some(after) = after {
            check_reached(after, visible)?;
        }
        let reader = match (&engine.log.wal, after) {
            (Some(wal), None) => wal.reader_at_end(),
            _ => source.reader_after(after.unwrap_or(visible))?,
        };
        let delivered = after.unwrap_or_else(|| reader.last_sequence());
        let token = match start {
            Start::Resume(from) => from,
            _ => source.first_token(delivered, &reader, is_unsynced)?,
        };
        let task = Arc::new(WatchTask::new(filter.internal_prefix(engine)));
        Ok(Watcher {
            db: db.clone(),
            filter,
            is_unsynced,
            source,
            reader,
            pending: VecDeque::new(),
            trees: Trees::default(),
            delivered,
            token,
            synced_at_ns: None,
            task,
        })
    }

    /// Waits for the next commit and returns it. `None` once the watcher is stopped, or at the end
    /// of a read-only database; `Closed` once the database is closed.
    #[expect(clippy::should_implement_trait, reason = "an iterator's `next` cannot fail")]
    pub fn next(&mut self) -> Result<Option<ChangeSet>> {
        self.next_by(Patience::Endless)
    }

    /// Waits at most `timeout` for the next commit; `None` without one or once stopped.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<ChangeSet>> {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = self.db.engine().now_ns().saturating_add(ns);
        self.next_by(Patience::UntilNs(until_ns))
    }

    /// Returns the next commit if there is one. Does not wait, but may sync the log.
    pub fn try_next(&mut self) -> Result<Option<ChangeSet>> {
        self.next_by(Patience::None)
    }

    /// Returns the token to resume after the last returned commit. It also advances over commits
    /// that the filter skips, so a token taken now and then does not become too old.
    pub fn token(&self) -> ResumeToken {
        self.token
    }

    /// Returns a handle to stop the watcher.
    pub fn stopper(&self) -> WatchStopper {
        WatchStopper { engine: Arc::clone(self.db.engine()), task: Arc::clone(&self.task) }
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.task.is_stopped.load(Ordering::Acquire)
    }

    pub(super) fn is_of_closed_log(&self) -> bool {
        self.source.closed.is_some()
    }

    pub(super) fn source_state(&self) -> SourceState {
        self.source.state()
    }

    fn next_by(&mut self, patience: Patience) -> Result<Option<ChangeSet>> {
        loop {
            let engine = Arc::clone(self.db.engine());
            if self.is_stopped() {
                return Ok(None);
            }
            engine.health.check_open()?;
            // Loaded before reading: anything newer ends the wait below.
            let before = self.source.state();
            if let Some(shown) = self.show_pending(&engine)? {
                return Ok(Some(shown));
            }
            if self.has_read_on()? {
                continue;
            }
            let now_ns = engine.now_ns();
            let left_ns = match patience {
                Patience::None => 0,
                Patience::UntilNs(until_ns) => until_ns.saturating_sub(now_ns),
                Patience::Endless => u64::MAX,
            };
            if let Some(pause_ns) = self.pause_before_sync(&engine, now_ns) {
                if pause_ns == 0 || left_ns == 0 {
                    self.sync(&engine)?;
                    continue;
                }
                self.wait(&engine, left_ns.min(pause_ns), before);
                continue;
            }
            if left_ns == 0 || self.is_of_closed_log() {
                return Ok(None);
            }
            self.wait(&engine, left_ns, before);
        }
    }

    /// Returns true if the next commits wait for a sync.
    pub(super) fn needs_sync(&self, engine: &Engine) -> bool {
        let wal = engine.log.wal.as_ref().filter(|_| !self.is_unsynced);
        self.pending.is_empty() && wal.is_some_and(|wal| wal.durable_lsn() < wal.end_lsn())
    }

    fn pause_before_sync(&self, engine: &Engine, now_ns: u64) -> Option<u64> {
        if !self.needs_sync(engine) {
            return None;
        }
        let due_ns = self.synced_at_ns.map_or(0, |at_ns| at_ns.saturating_add(SYNC_PAUSE_NS));
        Some(due_ns.saturating_sub(now_ns))
    }

    pub(super) fn sync(&mut self, engine: &Engine) -> Result<()> {
        let _inside = engine.health.enter_past_closing()?;
        if let Some(wal) = &engine.log.wal {
            pipeline::sync_to(engine, wal.end_lsn())?;
        }
        self.synced_at_ns = Some(engine.now_ns());
        Ok(())
    }

    fn wait(&self, engine: &Engine, pause_ns: u64, before: SourceState) {
        engine.wait_for_commits(Duration::from_nanos(pause_ns), || {
            self.is_stopped() || engine.health.check_open().is_err() || self.source.state() != before
        });
    }

    /// Reads on if nothing is pending.
    pub(super) fn has_read_on(&mut self) -> Result<bool> {
        Ok(self.pending.is_empty() && self.read_on()?)
    }

    fn read_on(&mut self) -> Result<bool> {
        // The order matters: the log read up to `end` contains everything before `gap`.
        let gap = self.source.gap_end();
        let (end, limit) = (self.source.limit(true), self.source.limit(self.is_unsynced));
        let mut items = VecDeque::new();
        let read = self.reader.read(&self.source, limit, READ_AHEAD_BYTES, &mut items);
        if items.is_empty() {
            read.map_err(|e| self.too_old(e))?;
            if gap <= self.delivered || limit < end || self.reader.lsn() < end {
                return Ok(false);
            }
            self.reader.pass(gap);
            items.push_back(LogItem::Missing { up_to: gap });
        }
        for item in items {
            self.pending.push_back(match item {
                LogItem::Group(info, payload) => Pending::Group { info, payload, at: 0, sequence: info.first_sequence },
                LogItem::Missing { up_to } => Pending::Missing { up_to },
            });
        }
        Ok(true)
    }

    fn too_old(&self, error: ReadError) -> Error {
        match error {
            ReadError::Gone(Gone { floor }) => Error::WatchTooOld { after: self.delivered, floor },
            ReadError::Failed(error) => error,
        }
    }

    pub(super) fn show_pending(&mut self, engine: &Arc<Engine>) -> Result<Option<ChangeSet>> {
        while let Some(pending) = self.pending.front() {
            if pending.sequence() > engine.readers.snapshots.visible() {
                return Ok(None);
            }
            if let Some(shown) = self.show_first(engine)? {
                return Ok(Some(shown));
            }
        }
        Ok(None)
    }

    fn show_first(&mut self, engine: &Arc<Engine>) -> Result<Option<ChangeSet>> {
        let Watcher { pending, filter, source, trees, delivered, .. } = self;
        let Some(first) = pending.front_mut() else { return Ok(None) };
        let sequence = first.sequence();
        let (changes, time_us) = match first {
            Pending::Missing { up_to } => (vec![Change::Gap(Gap::Commits { up_to: *up_to })], None),
            Pending::Group { info, payload, at, .. } => {
                let mut operations: Vec<Operation<'_>> = Vec::new();
                let len = decode_batch(payload.get(*at..).unwrap_or_default(), |operation| operations.push(operation));
                let Some(len) = len else {
                    return Err(Error::corruption(&engine.dir, 0, "a record of the log cannot be understood"));
                };
                let is_new = sequence > *delivered;
                let mut decoder = Decoder { engine, filter, source, trees, delivered: *delivered };
                let changes = if is_new { decoder.changes(&operations)? } else { Vec::new() };
                *at += len;
                (changes, Some(info.commit_time_us))
            }
        };
        self.pass_first(engine, sequence);
        if changes.is_empty() {
            return Ok(None);
        }
        let time = time_us.and_then(|us| UNIX_EPOCH.checked_add(Duration::from_micros(us)));
        let version = engine.commits.versions.of(sequence);
        Ok(Some(ChangeSet { sequence, version, time, changes, token: self.token }))
    }

    fn pass_first(&mut self, engine: &Engine, shown: SequenceNumber) {
        let (mut epoch, mut lsn) = (u64::from(self.reader.epoch()), self.reader.lsn());
        let is_done = match self.pending.front_mut() {
            Some(Pending::Group { info, sequence, .. }) => {
                (epoch, lsn) = (u64::from(info.epoch), info.end_lsn);
                *sequence += 1;
                *sequence > info.last_sequence
            }
            _ => true,
        };
        if is_done {
            self.pending.pop_front();
        }
        if shown > self.delivered {
            self.delivered = shown;
            let (incarnation, is_synced) = (engine.log.incarnation, !self.is_unsynced);
            self.token = ResumeToken { incarnation, sequence: shown, epoch, lsn, is_synced };
        }
    }
}
