//! Watchers read the log's files by themselves ([`crate::wal::LogReader`]). INVARIANT W1: a watcher
//! returns a commit only once it is visible and, by default, synced, so a crash never takes back a
//! returned commit. A token is checked against incarnation, visible commit and log when a watch
//! resumes.

use super::{
    change::{Change, ChangeSet, Gap},
    decode::{Decoder, Filter, Trees},
    token::ResumeToken,
};
use crate::{
    base::{Error, Result, SequenceNumber},
    commit::{Operation, decode_batch},
    db::{
        engine::{catalog::TreeState, root::Engine},
        handles::{database::Db, multi::tree::MultiTree, tree::Tree},
    },
    platform::UNIX_EPOCH,
    version::Layout,
    wal::{
        ClosedLog, Gone, LogItem, LogReader, Lsn, ReadError, RecordInfo, RecoveryInput, RetentionLimit, Segment,
        SegmentSource, Visit, end_of_epoch, recover,
    },
};
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Target bytes of log in memory; at least one commit group.
const READ_AHEAD_BYTES: usize = 1 << 20;

/// Maximum number of restarts because another process wrote the log.
const LOOKS_MAX: u32 = 100;

/// Minimum time between two log syncs by a waiting watcher.
const SYNC_PAUSE_NS: u64 = 5_000_000;

#[derive(Clone, Copy, Debug, Default)]
enum Start {
    #[default]
    Now,
    After(SequenceNumber),
    Resume(ResumeToken),
    Oldest,
}

/// Filter and start of a watcher: see [`Db::watch`].
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    filter: Filter,
    tree: Option<Arc<TreeState>>,
    start: Start,
    is_unsynced: bool,
}

impl WatchOptions {
    /// Watches all trees for synced commits, from now on.
    pub fn new() -> WatchOptions {
        WatchOptions::default()
    }

    /// Watches only this tree, including its drop and renames.
    pub fn tree(self, tree: &Tree) -> WatchOptions {
        self.of_tree(tree.state())
    }

    /// Watches only this multi-tree.
    pub fn multi_tree(self, tree: &MultiTree) -> WatchOptions {
        self.of_tree(tree.state())
    }

    fn of_tree(self, tree: &Arc<TreeState>) -> WatchOptions {
        WatchOptions { tree: Some(Arc::clone(tree)), ..self.tree_id(tree.id.0) }
    }

    /// Watches only the tree of this number, which may have been dropped.
    pub fn tree_id(mut self, id: u32) -> WatchOptions {
        self.filter.tree = Some(id);
        self.tree = None;
        self
    }

    /// Watches only keys with this prefix; requires a tree. Clips deleted ranges to the prefix.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> WatchOptions {
        self.filter.prefix = prefix.as_ref().to_vec();
        self
    }

    /// Starts after this commit, for example that of a [`crate::Snapshot`] whose data were read.
    pub fn after(mut self, commit: SequenceNumber) -> WatchOptions {
        self.start = Start::After(commit);
        self
    }

    /// Starts at the position of another watcher of this database, in any process.
    pub fn resume(mut self, token: ResumeToken) -> WatchOptions {
        self.start = Start::Resume(token);
        self
    }

    /// Starts at the first commit in the log.
    pub fn from_oldest(mut self) -> WatchOptions {
        self.start = Start::Oldest;
        self
    }

    /// If true, returns commits once they are visible, before they are synced, and never syncs the
    /// log. A crash of the system may take them back; the token is then refused.
    pub fn unsynced(mut self, unsynced: bool) -> WatchOptions {
        self.is_unsynced = unsynced;
        self
    }
}

/// Stops a watcher from any thread.
#[derive(Clone)]
pub struct WatchStopper {
    engine: Arc<Engine>,
    is_stopped: Arc<AtomicBool>,
}

impl std::fmt::Debug for WatchStopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchStopper").finish_non_exhaustive()
    }
}

impl WatchStopper {
    /// Makes the watcher return `None` from all current and later calls.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.engine.log.watches.wake();
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
    is_stopped: Arc<AtomicBool>,
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
    /// use braiddb::{Change, WatchOptions};
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
    /// let token = braiddb::ResumeToken::from_bytes(&kept)?;
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
            Start::After(commit) => Some(engine.before_refused(commit)),
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
            is_stopped: Arc::default(),
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
        WatchStopper { engine: Arc::clone(self.db.engine()), is_stopped: Arc::clone(&self.is_stopped) }
    }

    fn next_by(&mut self, patience: Patience) -> Result<Option<ChangeSet>> {
        loop {
            let engine = Arc::clone(self.db.engine());
            if self.is_stopped.load(Ordering::Acquire) {
                return Ok(None);
            }
            engine.health.check_open()?;
            // Loaded before reading: anything newer ends the wait below.
            let before = self.source.state();
            if let Some(shown) = self.show_pending(&engine)? {
                return Ok(Some(shown));
            }
            if self.pending.is_empty() && self.read_on()? {
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
            if left_ns == 0 || self.source.closed.is_some() {
                return Ok(None);
            }
            self.wait(&engine, left_ns, before);
        }
    }

    fn pause_before_sync(&self, engine: &Engine, now_ns: u64) -> Option<u64> {
        let wal = engine.log.wal.as_ref().filter(|_| !self.is_unsynced)?;
        if wal.durable_lsn() >= wal.end_lsn() || !self.pending.is_empty() {
            return None;
        }
        let due_ns = self.synced_at_ns.map_or(0, |at_ns| at_ns.saturating_add(SYNC_PAUSE_NS));
        Some(due_ns.saturating_sub(now_ns))
    }

    fn sync(&mut self, engine: &Engine) -> Result<()> {
        let _inside = engine.health.enter_past_closing()?;
        if let Some(wal) = &engine.log.wal {
            engine.sync_to(wal.end_lsn())?;
        }
        self.synced_at_ns = Some(engine.now_ns());
        Ok(())
    }

    fn wait(&self, engine: &Engine, pause_ns: u64, before: SourceState) {
        engine.wait_for_commits(Duration::from_nanos(pause_ns), || {
            self.is_stopped.load(Ordering::Acquire)
                || engine.health.check_open().is_err()
                || self.source.state() != before
        });
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

    fn show_pending(&mut self, engine: &Arc<Engine>) -> Result<Option<ChangeSet>> {
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
        let Watcher { pending, filter, trees, delivered, .. } = self;
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
                let mut decoder = Decoder { engine, filter, trees, delivered: *delivered };
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

/// The log being written, or the log found by a read-only database.
#[derive(Debug)]
struct Source {
    engine: Arc<Engine>,
    closed: Option<ClosedLog>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SourceState {
    visible: SequenceNumber,
    end: Lsn,
    durable: Lsn,
    gap: SequenceNumber,
}

impl Source {
    fn state(&self) -> SourceState {
        SourceState {
            visible: self.engine.readers.snapshots.visible(),
            end: self.limit(true),
            durable: self.limit(false),
            gap: self.gap_end(),
        }
    }

    fn new(engine: &Arc<Engine>) -> Result<Source> {
        let closed = if engine.log.wal.is_some() { None } else { Some(engine.find_log()?) };
        Ok(Source { engine: Arc::clone(engine), closed })
    }

    fn limit(&self, is_unsynced: bool) -> Lsn {
        match (&self.engine.log.wal, &self.closed) {
            (Some(wal), _) if is_unsynced => wal.end_lsn(),
            (Some(wal), _) => wal.durable_lsn().min(wal.end_lsn()),
            (None, Some(closed)) if is_unsynced => closed.end_lsn(),
            (None, closed) => closed.as_ref().map_or(0, ClosedLog::durable_lsn),
        }
    }

    /// Creates the token of a watcher that starts after `delivered`. It must be refused if a crash takes
    /// back this commit, so everything up to it is synced first, unless the watcher is unsynced.
    fn first_token(&self, delivered: SequenceNumber, reader: &LogReader, is_unsynced: bool) -> Result<ResumeToken> {
        let engine = &self.engine;
        let mut is_synced = self.limit(false) >= self.limit(true) && (self.closed.is_some() || !engine.has_unlogged());
        if engine.log.wal.is_some() && !is_unsynced && !is_synced && engine.health.check_writable().is_ok() {
            let _inside = engine.health.enter()?;
            engine.make_durable(delivered)?;
            is_synced = true;
        }
        let incarnation = engine.log.incarnation;
        let (epoch, lsn) = (u64::from(reader.epoch()), reader.lsn());
        if is_synced {
            return Ok(ResumeToken { incarnation, sequence: delivered, epoch, lsn, is_synced: true });
        }
        // The commit's place in the log is unknown, so the token requires the whole log.
        let last_epoch = self.with_segments(|segments, _| segments.last().map(|segment| segment.header.epoch));
        let (epoch, lsn) = (last_epoch.map_or(epoch, u64::from), self.limit(true));
        Ok(ResumeToken { incarnation, sequence: delivered, epoch, lsn, is_synced: false })
    }

    fn gap_end(&self) -> SequenceNumber {
        self.engine.commits.unlogged.load(Ordering::Acquire).min(self.engine.storage.flushed.load(Ordering::Acquire))
    }

    fn floor(&self) -> SequenceNumber {
        self.with_segments(|_, floor| floor)
    }

    fn reader_after(&self, after: SequenceNumber) -> Result<LogReader> {
        LogReader::seek(self, after).map_err(|Gone { floor }| Error::WatchTooOld { after, floor })
    }

    fn check_token(&self, token: &ResumeToken) -> Result<SequenceNumber> {
        if token.incarnation != self.engine.log.incarnation {
            return Err(Error::InvalidArgument(
                "the resume token is of another database, or of this one before it was restored: what it has not seen cannot be told; \
                 take a snapshot, and watch from its sequence number on"
                    .to_owned(),
            ));
        }
        // Checked first: after a restore from a copy, the token's epoch looks like a dropped one.
        check_reached(token.sequence, self.engine.readers.snapshots.visible())?;
        if token.is_synced {
            return Ok(token.sequence);
        }
        match end_of_epoch(self, u32::try_from(token.epoch).unwrap_or(u32::MAX)) {
            Some(end) if token.lsn <= end => Ok(token.sequence),
            Some(_) => Err(Error::InvalidArgument(
                "the resume token is of a watcher that saw commits before they were synced, and a crash has taken them back: take a \
                 snapshot, and watch from its sequence number on"
                    .to_owned(),
            )),
            None => Err(Error::WatchTooOld { after: token.sequence, floor: self.floor() }),
        }
    }
}

fn check_reached(commit: SequenceNumber, last: SequenceNumber) -> Result<()> {
    if commit <= last {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "the watch is to begin after commit {commit}, but the last commit of the database is {last}: a crash has \
         taken back commits that were not synced, the database was put back to an earlier state, or the number or resume token \
         is from another copy of it; take a snapshot, and watch from its sequence \
         number on"
    )))
}

impl SegmentSource for Source {
    fn with_segments<R>(&self, visit: impl FnOnce(&mut dyn Iterator<Item = &Arc<Segment>>, SequenceNumber) -> R) -> R {
        match (&self.engine.log.wal, &self.closed) {
            (Some(wal), _) => wal.with_segments(visit),
            (None, Some(closed)) => closed.with_segments(visit),
            (None, None) => visit(&mut std::iter::empty(), SequenceNumber::MAX),
        }
    }
}

impl Engine {
    /// Finds the log of a read-only database. If a writer in another process reuses segments that
    /// the manifest names, the search restarts with the newer manifest.
    fn find_log(&self) -> Result<ClosedLog> {
        let mut manifest = self.storage.disk.lock().manifest.clone();
        let started_ns = self.settings.runtime.monotonic_ns();
        let mut tries = 0;
        loop {
            tries += 1;
            match self.find_log_by(manifest.layout()) {
                Err(e) if e.is_corruption() && manifest.has_gone_on()? => {
                    if tries > LOOKS_MAX {
                        let took_ns = self.settings.runtime.monotonic_ns().saturating_sub(started_ns);
                        return Err(Error::too_busy(&self.dir, tries, Duration::from_nanos(took_ns), e));
                    }
                    tracing::debug!(error = %e, "the log was written anew while it was read, and is read again");
                }
                found => return found,
            }
            let newer = manifest.reopen()?;
            manifest =
                newer.filter(|newer| newer.layout().incarnation == self.log.incarnation).ok_or(Error::Superseded)?;
        }
    }

    fn find_log_by(&self, layout: &Layout) -> Result<ClosedLog> {
        let input = RecoveryInput {
            oldest_segment: (layout.oldest_segment > 0).then_some(layout.oldest_segment),
            durable_lsn: layout.durable_lsn,
            flushed: layout.flushed,
            is_to_sync: false,
        };
        let mut outcome = recover(&*self.storage.table.vfs, &self.dir, &input, &mut |_, _| Ok(Visit::Taken))?;
        let whatever_there_is = RetentionLimit { bytes: u64::MAX, ..RetentionLimit::default() };
        outcome.retain(whatever_there_is, |_| Ok(0))?;
        Ok(outcome.into_closed_log())
    }
}
