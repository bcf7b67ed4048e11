//! The owner's side of forwarded commits: each request takes effect at most once.
//!
//! A client's **session** has one request at a time in progress, with increasing numbers. The
//! commit of a request also puts the session's record into the catalog. A client that lost its
//! connection sends the request again, perhaps to the next owner. The record shows that it was
//! applied. Format of a record: number of the request (varint); time in seconds since 1970 (varint).
//!
//! INVARIANT S1: a request runs under the lock of its session, and only for the session's latest
//! connection. So once a client has connected again, requests that the earlier connection left
//! behind are finished or never run.
//!
//! Records are removed when the client says goodbye, or [`RECORD_KEPT_NS`] after its last commit, if
//! it has no connection. Clients stop sending again long before. As a clock may have jumped, an
//! owner keeps each record for [`RECORD_KEPT_MIN_NS`]: within it, the clients that repeat requests
//! connect.
//!
//! No commit runs under the lock of the table of sessions: it may wait for the disk.

use super::{
    held::{Held, Streams},
    message::{NO_SESSION, SessionId, TreeRequest},
};
use crate::{
    base::{Error, Result, SequenceNumber},
    codec::{ByteReader, put_varint},
    db::{Db, Durability, ExclusiveRight, ForwardedCommit, OpenWindow},
    platform::Runtime,
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Time for which the record of a lost client is kept.
const RECORD_KEPT_NS: u64 = 900 * SECOND_NS;

/// Time for which a new owner keeps all records.
const RECORD_KEPT_MIN_NS: u64 = 60 * SECOND_NS;

/// Maximum wait of a goodbye for an exclusive transaction. A record that stays is removed later.
const GOODBYE_NS: u64 = SECOND_NS / 10;

/// Maximum wait of a close for an exclusive transaction.
const HANDOVER_NS: u64 = 2 * SECOND_NS;

/// Maximum timeout of a client, so that it ends well before its record.
pub const TIMEOUT_MAX_NS: u64 = 600 * SECOND_NS;

#[derive(Debug)]
pub struct Owner {
    db: Db,
    sessions: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// Records without a client, with the time from which on they are removed.
    abandoned: Mutex<Vec<(u64, SessionId)>>,
    runtime: Arc<dyn Runtime>,
    /// Set when the owner closes: nothing waits for memory any more.
    is_ending: AtomicBool,
    streams: Streams,
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

/// A session's request to commit.
#[derive(Debug)]
pub struct Wanted {
    pub number: u64,
    pub commit: ForwardedCommit,
    pub durability: Durability,
    /// Later it must not begin.
    pub ends_ns: u64,
}

impl Owner {
    /// Takes over a database that this process has just opened.
    pub fn new(db: Db, runtime: Arc<dyn Runtime>) -> Result<Owner> {
        let _window = db.open_window();
        let (now_ns, now_s) = (runtime.monotonic_ns(), unix_time_s(&*runtime));
        let mut abandoned = Vec::new();
        for (session, record) in db.session_records()? {
            let Ok(id) = SessionId::try_from(session) else { continue };
            let committed_s = decode_record(&record).map_or(0, |(_, committed_s)| committed_s);
            let age_ns = now_s.saturating_sub(committed_s).saturating_mul(SECOND_NS);
            let kept_ns = RECORD_KEPT_NS.saturating_sub(age_ns).max(RECORD_KEPT_MIN_NS);
            abandoned.push((now_ns.saturating_add(kept_ns), id));
        }
        db.refuse_close();
        let (sessions, abandoned) = (Mutex::default(), Mutex::new(abandoned));
        let (is_ending, streams) = (AtomicBool::new(false), Streams::default());
        Ok(Owner { db, sessions, abandoned, runtime, is_ending, streams, _window })
    }

    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Makes a connection the latest of its session, and waits for the request that an earlier one
    /// may run.
    pub fn claim(&self, id: SessionId) -> Result<Claim> {
        if id == NO_SESSION {
            return Ok(Claim { id, session: Arc::default(), connection: 0 });
        }
        let (session, connection) = {
            let mut sessions = self.sessions.lock();
            let session = Arc::clone(sessions.entry(id).or_default());
            let connection = session.connections.fetch_add(1, Ordering::Relaxed) + 1;
            (session, connection)
        };
        let claim = Claim { id, session, connection };
        let mut progress = claim.session.progress.lock();
        if progress.applied.is_none() {
            progress.applied = Some(self.recorded(&id)?);
        }
        drop(progress);
        Ok(claim)
    }

    fn recorded(&self, id: &SessionId) -> Result<u64> {
        let Some(record) = self.db.session_record(id)? else { return Ok(0) };
        let decoded = decode_record(&record).map(|(number, _)| number);
        decoded.ok_or_else(|| Error::corruption(self.db.dir(), 0, "the record of a session cannot be understood"))
    }

    /// Applies a request, unless it was applied before. Returns a commit that the client must see.
    /// An exclusive commit ends the right that the connection holds, whatever its outcome.
    pub fn commit(
        &self,
        claim: &Claim,
        held: &mut Held,
        wanted: Wanted,
    ) -> std::result::Result<SequenceNumber, Unserved> {
        let Wanted { number, commit, durability, ends_ns } = wanted;
        let kept = held.take(commit.is_exclusive);
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
            return if number == last { Ok(self.db.logged()) } else { Err(Unserved::Superseded) };
        }
        // Another connection's request, or a claim, may have had the session until now.
        let now_ns = self.runtime.monotonic_ns();
        if now_ns >= ends_ns {
            return Err(self.late(now_ns, "its time was over before it could begin").into());
        }
        self.await_room(|| ends_ns)?;
        let mut record = Vec::with_capacity(16);
        put_varint(&mut record, number);
        put_varint(&mut record, unix_time_s(&*self.runtime));
        let record = (&claim.id[..], &record[..]);
        match self.db.waiting_until(ends_ns, |db| db.commit_forwarded(commit, Some(record), durability, kept)) {
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

    /// Ends the waits for memory and for an exclusive transaction, now and later.
    pub fn end_waits(&self) {
        self.is_ending.store(true, Ordering::Release);
        // Of this process: connections give up theirs.
        if let Err(error) = self.db.revoke_exclusive() {
            tracing::debug!(%error, "the exclusive transaction was not ended");
        }
    }

    /// Lets an exclusive transaction of a member end, for a while: with the next owner it is a
    /// conflict. The result keeps others from beginning one.
    pub fn await_exclusive_end(&self) -> Option<ExclusiveRight> {
        let ends_ns = self.runtime.monotonic_ns().saturating_add(HANDOVER_NS);
        self.db.waiting_until(ends_ns, |db| db.exclusive_right()).ok()
    }

    /// Waits until a commit need not wait for a flush. Fails if it must at `ends_ns`, and with
    /// `Closed` if the owner closes.
    pub fn await_room(&self, ends_ns: impl FnOnce() -> u64) -> Result<()> {
        if self.db.has_room() {
            return Ok(());
        }
        let began_ns = self.runtime.monotonic_ns();
        let is_ending = || self.is_ending.load(Ordering::Acquire);
        if self.db.await_room(ends_ns(), is_ending)? {
            return Ok(());
        }
        if is_ending() {
            return Err(Error::Closed);
        }
        Err(self.late(began_ns, "writes wait until there is memory for them"))
    }

    fn late(&self, began_ns: u64, reason: &str) -> Error {
        let waited = Duration::from_nanos(self.runtime.monotonic_ns().saturating_sub(began_ns));
        Error::NoOwner { path: self.db.dir().to_owned(), waited, reason: reason.to_owned() }
    }

    /// Opens or creates a tree. Returns a commit from which on it exists.
    pub fn tree(&self, request: &TreeRequest) -> Result<SequenceNumber> {
        let TreeRequest { name, multi, exact, options } = request;
        match (multi, exact) {
            (true, _) => drop(self.db.multi_tree(name)?),
            (false, true) => drop(self.db.tree_with(name, *options)?),
            (false, false) => drop(self.db.tree(name)?),
        }
        Ok(self.db.logged())
    }

    pub fn sync(&self) -> Result<SequenceNumber> {
        self.db.sync()?;
        Ok(self.db.logged())
    }

    pub fn incarnation(&self) -> u64 {
        self.db.incarnation()
    }

    pub fn function(&self, name: &str) -> Result<SequenceNumber> {
        drop(self.db.merge_function(name)?);
        Ok(self.db.logged())
    }

    /// Ends a connection. After a goodbye the session is over.
    pub fn release(&self, claim: &Claim, is_goodbye: bool) {
        let mut sessions = self.sessions.lock();
        if claim.id == NO_SESSION || claim.session.connections.load(Ordering::Relaxed) != claim.connection {
            return;
        }
        // Only the latest connection runs requests for more than a moment, and it ends here.
        let progress = claim.session.progress.lock();
        if progress.unknown.is_some() {
            return;
        }
        sessions.remove(&claim.id);
        drop(sessions);
        let has_record = progress.applied.is_some_and(|number| number > 0);
        drop(progress);
        let ends_ns = self.runtime.monotonic_ns().saturating_add(GOODBYE_NS);
        if has_record && !(is_goodbye && self.remove_record(&claim.id, ends_ns)) {
            self.abandon(claim.id);
        }
    }

    fn abandon(&self, id: SessionId) {
        self.abandoned.lock().push((self.runtime.monotonic_ns().saturating_add(RECORD_KEPT_NS), id));
    }

    fn remove_record(&self, id: &SessionId, ends_ns: u64) -> bool {
        let removed = self.db.waiting_until(ends_ns, |db| db.remove_session_record(id));
        removed.inspect_err(|error| tracing::debug!(%error, "the record of an ended session was not removed")).is_ok()
    }

    /// Removes the records of clients that have been gone for long. Never waits for a flush, or for
    /// an exclusive transaction.
    pub fn remove_old_records(&self) {
        let now_ns = self.runtime.monotonic_ns();
        let mut abandoned = self.abandoned.lock();
        if abandoned.iter().all(|(from_ns, _)| *from_ns > now_ns) || !self.db.has_room() {
            return;
        }
        let old: Vec<SessionId> =
            abandoned.extract_if(.., |(from_ns, _)| *from_ns <= now_ns).map(|(_, id)| id).collect();
        drop(abandoned);
        old.into_iter().for_each(|id| self.remove_old_record(id));
    }

    fn remove_old_record(&self, id: SessionId) {
        let mut sessions = self.sessions.lock();
        if sessions.contains_key(&id) {
            // The client came back; the end of its connection comes here again.
            return;
        }
        let session = Arc::<Session>::default();
        sessions.insert(id, Arc::clone(&session));
        // A client that comes back meanwhile waits in `claim`, and then reads that there is no record.
        let progress = session.progress.lock();
        drop(sessions);
        let is_removed = self.remove_record(&id, 0);
        drop(progress);
        let mut sessions = self.sessions.lock();
        if session.connections.load(Ordering::Relaxed) == 0 {
            sessions.remove(&id);
            drop(sessions);
            if !is_removed {
                self.abandon(id);
            }
        }
    }

    #[cfg(test)]
    pub fn record_count(&self) -> usize {
        self.db.session_records().unwrap().len()
    }
}

fn unix_time_s(runtime: &dyn Runtime) -> u64 {
    runtime.unix_time_us() / 1_000_000
}

/// Returns the number and the time.
fn decode_record(record: &[u8]) -> Option<(u64, u64)> {
    let mut reader = ByteReader::new(record);
    Some((reader.varint()?, reader.varint()?))
}
