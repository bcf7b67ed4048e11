//! State of the commit pipeline: queue, sequence numbers, conflict window, exclusive transactions.
//!
//! The leader of a commit group holds `write`; it alone numbers, logs, inserts and publishes.

use crate::{
    base::{Result, SequenceNumber},
    commit::{CommitQueue, PreparedBatch},
    db::record::version_tags::VersionTags,
    txn::{Check, Validation, Window},
};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize},
    thread::Thread,
};

/// The commit pipeline's state.
#[derive(Debug)]
pub struct CommitPipeline {
    pub queue: CommitQueue<Request, Result<Answer>>,
    pub write: Mutex<WriteState>,
    /// Writes of recent commits; transactions are validated against it.
    pub window: Window,
    pub exclusivity: Exclusivity,
    /// Makes the versions of commits.
    pub versions: VersionTags,
    /// The last commit without WAL.
    pub unlogged: AtomicU64,
}

impl CommitPipeline {
    /// The pipeline of a database whose last commit is `last_sequence`.
    pub fn new(
        last_sequence: SequenceNumber,
        window_bytes: usize,
        versions: VersionTags,
        has_unstored_tag: bool,
    ) -> CommitPipeline {
        let write = WriteState {
            last_sequence,
            refused: None,
            payload: Vec::new(),
            exclusive: None,
            exclusive_tickets: 0,
            unlogged: 0,
            reserved: last_sequence,
            has_unstored_tag,
            holds_back: false,
        };
        CommitPipeline {
            queue: CommitQueue::default(),
            write: Mutex::new(write),
            window: Window::new(window_bytes),
            exclusivity: Exclusivity::default(),
            versions,
            unlogged: AtomicU64::new(0),
        }
    }
}

/// A batch on its way through the queue.
#[derive(Debug, Default)]
pub struct Request {
    /// What it writes.
    pub batch: PreparedBatch,
    /// How many trees had been dropped when those it writes to were last seen to be there.
    pub drops: u64,
    /// Whether it need not go to the log.
    pub is_unlogged: bool,
    /// What must not have been written by others.
    pub check: Option<Box<Check>>,
    /// What came of the check, by the leader.
    pub validation: Validation,
}

/// Where a committed batch stands.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    pub sequence: SequenceNumber,
    pub lsn: u64,
}

/// What became of a request.
#[derive(Debug)]
pub enum Answer {
    Committed(Committed),
    /// A tree was dropped since the request's trees were seen to be there: they must be looked at again.
    Retry(Request),
    /// What the check is about was written by others.
    Changed,
    /// The window of recent commits does not reach back to what the check has seen.
    TooOld(Request),
}

/// What the commit leader alone changes.
#[derive(Debug)]
pub struct WriteState {
    pub last_sequence: SequenceNumber,
    /// From the first to the last, numbers that nobody has, since the log had no space for their commits, and that it does not tell of yet.
    pub refused: Option<(SequenceNumber, SequenceNumber)>,
    pub payload: Vec<u8>,
    /// The exclusive transaction that is open: nobody else commits.
    pub exclusive: Option<ExclusiveOwner>,
    /// The ticket of the last exclusive transaction.
    pub exclusive_tickets: u64,
    /// The last commit that did not go to the log, if none has gone there since; else 0.
    pub unlogged: SequenceNumber,
    /// Numbers up to this may have been used, as the manifest says.
    pub reserved: SequenceNumber,
    /// Whether a tag for versions was drawn at the open and no commit has stored it yet.
    pub has_unstored_tag: bool,
    /// Whether commits stay invisible for now, because the data that they announce is not installed yet.
    pub holds_back: bool,
}

/// An exclusive transaction that is open.
#[derive(Clone, Debug)]
pub struct ExclusiveOwner {
    /// Its number; no other transaction has it.
    pub ticket: u64,
    /// When it began, by the runtime's clock.
    pub began_ns: u64,
    /// The thread that began it, for messages alone: the transaction may have moved since.
    pub began_by: Thread,
}

impl ExclusiveOwner {
    /// The thread that began it, in words.
    pub fn describe_thread(&self) -> String {
        match (self.began_by.id() == std::thread::current().id(), self.began_by.name()) {
            (true, _) => "this thread".to_owned(),
            (false, Some(name)) => format!("the thread {name:?}"),
            (false, None) => format!("the thread {:?}", self.began_by.id()),
        }
    }
}

/// Set in [`Exclusivity::notices`] while an exclusive transaction is open.
pub const NOTICE_EXCLUSIVE: usize = 1;

/// Added to [`Exclusivity::notices`] for each closure of `Db::update` that runs.
pub const NOTICE_UPDATE: usize = 2;

/// What commits look at before they go ahead, beside what `write` guards.
#[derive(Debug, Default)]
pub struct Exclusivity {
    /// Zero if there is nothing to look at: the fast path of a commit reads this alone.
    pub notices: AtomicUsize,
    /// Notified when an exclusive transaction ends, and when the database is closed.
    pub ended: Condvar,
}
