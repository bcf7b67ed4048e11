//! State of the commit pipeline. See `write/pipeline.rs` for its stages and invariants.

use crate::{
    base::{Result, SequenceNumber},
    commit::{CommitQueue, PreparedBatch},
    db::{
        engine::slow_commits::{
            recorder::SlowCommits,
            report::{CommitParts, RunningWork, SlowCause},
        },
        record::version_tags::VersionTags,
    },
    txn::{Check, TreeEnds, Validation, Window},
};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::atomic::{AtomicU64, AtomicUsize},
    thread::Thread,
};

#[derive(Debug)]
pub struct CommitPipeline {
    pub queue: CommitQueue<Request, Result<Answer>>,
    pub write: Mutex<WriteState>,
    pub window: Window,
    pub tree_ends: TreeEnds,
    pub exclusivity: Exclusivity,
    pub versions: VersionTags,
    pub unlogged: AtomicU64,
    pub slow: SlowCommits,
}

impl CommitPipeline {
    pub fn new(
        last_sequence: SequenceNumber,
        window_bytes: usize,
        versions: VersionTags,
        has_unstored_tag: bool,
        slow_ns: u64,
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
            delay: GroupDelay::default(),
        };
        CommitPipeline {
            queue: CommitQueue::default(),
            write: Mutex::new(write),
            window: Window::new(window_bytes),
            tree_ends: TreeEnds::default(),
            exclusivity: Exclusivity::default(),
            versions,
            unlogged: AtomicU64::new(0),
            slow: SlowCommits::new(slow_ns),
        }
    }
}

#[derive(Debug, Default)]
pub struct Request {
    pub batch: PreparedBatch,
    /// Number of trees dropped when the batch's trees were last checked (INVARIANT C3,
    /// `pipeline.rs`).
    pub drops: u64,
    pub is_unlogged: bool,
    pub check: Option<Box<Check>>,
    pub validation: Validation,
}

#[derive(Clone, Copy, Debug)]
pub struct Committed {
    pub sequence: SequenceNumber,
    pub lsn: u64,
    /// Number of the group's delay in [`SlowCommits`]; 0 without one.
    pub delay: u64,
}

#[derive(Debug)]
pub enum Answer {
    Committed(Committed),
    /// Submit again: a tree was dropped since the check, an exclusive transaction is open, or the
    /// deletes of a mixed group are retried alone on a full disk.
    Retry(Request),
    Changed,
    /// The conflict window does not reach back far enough.
    TooOld(Request),
}

#[derive(Debug)]
pub struct WriteState {
    pub last_sequence: SequenceNumber,
    /// First and last of the rejected sequence numbers without no-ops in the log.
    pub refused: Option<(SequenceNumber, SequenceNumber)>,
    pub payload: Vec<u8>,
    pub exclusive: Option<ExclusiveOwner>,
    pub exclusive_tickets: u64,
    /// The last commit without WAL, if no logged commit followed; else 0.
    pub unlogged: SequenceNumber,
    /// The manifest reserves the numbers up to this one.
    pub reserved: SequenceNumber,
    /// The open drew a tag for versions that no commit has stored yet.
    pub has_unstored_tag: bool,
    /// Commits stay hidden until the runs that they announce are installed.
    pub holds_back: bool,
    pub delay: GroupDelay,
}

/// The waits of the present commit group.
#[derive(Debug, Default)]
pub struct GroupDelay {
    is_any: bool,
    pub parts: CommitParts,
    pub background: Option<RunningWork>,
}

impl GroupDelay {
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    #[cold]
    pub fn add(&mut self, part: SlowCause, ns: u64) {
        self.is_any = true;
        self.parts.add(part, ns);
    }
}

#[derive(Clone, Debug)]
pub struct ExclusiveOwner {
    pub ticket: u64,
    pub began_ns: u64,
    /// For messages only: the transaction may have moved since.
    pub began_by: Thread,
}

impl ExclusiveOwner {
    pub fn describe_thread(&self) -> String {
        match (self.began_by.id() == std::thread::current().id(), self.began_by.name()) {
            (true, _) => "this thread".to_owned(),
            (false, Some(name)) => format!("the thread {name:?}"),
            (false, None) => format!("the thread {:?}", self.began_by.id()),
        }
    }
}

pub const NOTICE_EXCLUSIVE: usize = 1;

pub const NOTICE_UPDATE: usize = 2;

/// State that commits check without `write`.
#[derive(Debug, Default)]
pub struct Exclusivity {
    /// Zero in the common case. `NOTICE_EXCLUSIVE` flags an exclusive transaction, and each closure
    /// of `Db::update` adds `NOTICE_UPDATE`.
    pub notices: AtomicUsize,
    pub ended: Condvar,
}
