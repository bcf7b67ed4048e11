//! The owner's side of forwarded commits: each request takes effect at most once.
//!
//! A client's **session** has one request at a time in progress, with increasing numbers. The
//! commit of a request also puts the pair (session, number) into the tree [`SESSIONS_TREE`]. A
//! client that lost its connection sends the request again, perhaps to the next owner. The record
//! shows that it was applied.
//!
//! INVARIANT S1: a request runs under the lock of its session, and only for the session's latest
//! connection. So once a client has connected again, requests that the earlier connection left
//! behind are finished or never run.
//!
//! Records are removed when the client says goodbye, or [`RECORD_KEPT_NS`] after its connection
//! ended or this process became the owner. Clients stop sending again long before.

use super::message::{NO_SESSION, SessionId, TreeRequest};
use crate::{
    base::{Error, Result, SequenceNumber},
    codec::{ByteReader, put_varint},
    db::{Db, Durability, ForwardedCommit, OpenWindow, Tree},
    platform::Runtime,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The tree of session records.
pub const SESSIONS_TREE: &str = "braiddb.sessions";

/// Time for which the record of a lost client is kept.
const RECORD_KEPT_NS: u64 = 900_000_000_000;

/// Maximum timeout of a client, so that it ends well before its record.
pub const TIMEOUT_MAX_NS: u64 = 600_000_000_000;

#[derive(Debug)]
pub struct Owner {
    db: Db,
    records: Tree,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Records without a client, with the time at which they lost it.
    abandoned: Mutex<Vec<(u64, SessionId)>>,
    runtime: Arc<dyn Runtime>,
    _window: OpenWindow,
}

#[derive(Debug, Default)]
struct Session {
    /// Number of its connections so far.
    connections: AtomicU64,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The last request applied; `None` until it is read from the record.
    applied: Option<u64>,
    /// A request whose sync failed.
    unknown: Option<(u64, String)>,
}

/// A connection's right to run requests of a session.
#[derive(Debug)]
pub struct Claim {
    id: SessionId,
    session: Arc<Session>,
    connection: u64,
}

impl Claim {
    pub fn id(&self) -> &SessionId {
        &self.id
    }
}

/// Why a request did not run.
#[derive(Debug)]
pub enum Unserved {
    /// A later connection of the session exists.
    Superseded,
    /// The owner is closing.
    Closing,
    Refused(Error),
}

impl From<Error> for Unserved {
    fn from(error: Error) -> Unserved {
        match error {
            Error::Closed => Unserved::Closing,
            other => Unserved::Refused(other),
        }
    }
}

impl Owner {
    /// Takes over a database that this process has just opened.
    pub fn new(db: Db, runtime: Arc<dyn Runtime>) -> Result<Owner> {
        let _window = db.open_window();
        let records = db.tree(SESSIONS_TREE)?;
        let now_ns = runtime.monotonic_ns();
        let mut abandoned = Vec::new();
        for row in records.iter() {
            if let Ok(id) = SessionId::try_from(&row?.0[..]) {
                abandoned.push((now_ns, id));
            }
        }
        Ok(Owner { db, records, sessions: Mutex::default(), abandoned: Mutex::new(abandoned), runtime, _window })
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Makes a connection the latest of its session, and waits for the request that an earlier one
    /// may run.
    pub fn claim(&self, id: SessionId) -> Result<Claim> {
        let (session, connection) = {
            let mut sessions = self.sessions.lock();
            let session = Arc::clone(sessions.entry(id).or_default());
            let connection = session.connections.fetch_add(1, Ordering::Relaxed) + 1;
            (session, connection)
        };
        let claim = Claim { id, session, connection };
        let mut progress = claim.session.progress.lock();
        if progress.applied.is_none() && id != NO_SESSION {
            progress.applied = Some(self.recorded(&id)?);
        }
        drop(progress);
        Ok(claim)
    }

    fn recorded(&self, id: &SessionId) -> Result<u64> {
        let Some(record) = self.records.get(id)? else { return Ok(0) };
        let number = ByteReader::new(&record).varint();
        number.ok_or_else(|| Error::InvalidArgument(format!("the tree {SESSIONS_TREE:?} has a foreign record")))
    }

    /// Applies request `number`, unless it was applied before. Returns the commit that the client
    /// must see.
    pub fn commit(
        &self,
        claim: &Claim,
        number: u64,
        commit: ForwardedCommit,
        durability: Durability,
    ) -> std::result::Result<SequenceNumber, Unserved> {
        let mut progress = claim.session.progress.lock();
        if claim.session.connections.load(Ordering::Relaxed) != claim.connection {
            return Err(Unserved::Superseded);
        }
        if let Some((_, reason)) = progress.unknown.as_ref().filter(|(unknown, _)| *unknown == number) {
            return Err(Unserved::Refused(Error::CommitUnknown { reason: reason.clone() }));
        }
        let last = progress.applied.unwrap_or_default();
        if number <= last {
            // The commit before waited for its sync, or recovery has synced it.
            return if number == last { Ok(self.db.visible()) } else { Err(Unserved::Superseded) };
        }
        let mut record = Vec::new();
        put_varint(&mut record, number);
        match self.db.commit_forwarded(commit, Some((&self.records, &claim.id, &record)), durability) {
            Ok(sequence) => {
                progress.applied = Some(number);
                Ok(sequence)
            }
            Err(e) => {
                if let Error::CommitUnknown { reason } = &e {
                    progress.unknown = Some((number, reason.clone()));
                }
                Err(e.into())
            }
        }
    }

    /// Opens or creates a tree. Returns a commit from which on it exists.
    pub fn tree(&self, request: &TreeRequest) -> Result<SequenceNumber> {
        let TreeRequest { name, multi, exact, options } = request;
        check_tree_name(name)?;
        match (multi, exact) {
            (true, _) => drop(self.db.multi_tree(name)?),
            (false, true) => drop(self.db.tree_with(name, *options)?),
            (false, false) => drop(self.db.tree(name)?),
        }
        Ok(self.db.visible())
    }

    pub fn sync(&self) -> Result<SequenceNumber> {
        self.db.sync()?;
        Ok(self.db.visible())
    }

    pub fn incarnation(&self) -> u64 {
        self.db.incarnation()
    }

    pub fn function(&self, name: &str) -> Result<SequenceNumber> {
        drop(self.db.merge_function(name)?);
        Ok(self.db.visible())
    }

    /// Ends a connection. After a goodbye the session is over.
    pub fn release(&self, claim: &Claim, is_goodbye: bool) {
        let mut sessions = self.sessions.lock();
        if claim.session.connections.load(Ordering::Relaxed) != claim.connection || claim.id == NO_SESSION {
            return;
        }
        let progress = claim.session.progress.lock();
        if progress.unknown.is_some() {
            return;
        }
        sessions.remove(&claim.id);
        let has_record = progress.applied.is_some_and(|number| number > 0);
        if has_record && !(is_goodbye && self.remove_record(&claim.id)) {
            self.abandoned.lock().push((self.runtime.monotonic_ns(), claim.id));
        }
    }

    fn remove_record(&self, id: &SessionId) -> bool {
        let mut batch = self.db.batch();
        batch.delete(&self.records, id);
        let removed = batch.commit_with(Durability::Buffered);
        removed.inspect_err(|error| tracing::debug!(%error, "the record of an ended session was not removed")).is_ok()
    }

    /// Removes the records of clients that have been gone for long.
    pub fn remove_old_records(&self) {
        let now_ns = self.runtime.monotonic_ns();
        let mut abandoned = self.abandoned.lock();
        let is_old = |since_ns: u64| now_ns.saturating_sub(since_ns) >= RECORD_KEPT_NS;
        let old: Vec<SessionId> =
            abandoned.iter().filter(|(since_ns, _)| is_old(*since_ns)).map(|(_, id)| *id).collect();
        abandoned.retain(|(since_ns, _)| !is_old(*since_ns));
        drop(abandoned);
        for id in old {
            // Under this lock no client comes back.
            let sessions = self.sessions.lock();
            if !sessions.contains_key(&id) && !self.remove_record(&id) {
                self.abandoned.lock().push((now_ns, id));
            }
        }
    }
}

/// Refuses the name of the tree of session records.
pub fn check_tree_name(name: &str) -> Result<()> {
    if name == SESSIONS_TREE {
        return Err(Error::InvalidArgument(format!("the tree name {SESSIONS_TREE:?} is reserved")));
    }
    Ok(())
}
