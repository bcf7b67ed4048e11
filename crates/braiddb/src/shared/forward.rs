//! Calls that run in the owner, which may be this process.
//!
//! A call that loses its owner waits for the next one and sends its request again; the session's
//! record keeps it from running twice. Writes that depend on no reads, of several threads, share a
//! request, as commits share a log record.

use super::{
    core::Core,
    message::{Reply, Request},
    owner::{Owner, Unserved},
    session::{Deadline, Lost, Session},
};
use crate::{
    base::{Error, Result, SequenceNumber},
    commit::CommitQueue,
    db::{Durability, ForwardedCommit},
};

/// Maximum sessions of a process; more calls wait.
const SESSIONS_MAX: usize = 16;

/// Bytes of writes above which a request takes no more.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// First pause before a request is sent again, and the longest.
const PAUSE_US_MIN: u64 = 500;
const PAUSE_US_MAX: u64 = 20_000;

/// Writes that wait for a request that takes them.
#[derive(Debug, Default)]
pub struct WriteQueues {
    buffered: CommitQueue<Write, Result<SequenceNumber>>,
    durable: CommitQueue<Write, Result<SequenceNumber>>,
}

#[derive(Debug)]
struct Write {
    batches: Vec<u8>,
    deadline: Deadline,
}

impl WriteQueues {
    /// Commits writes that depend on no reads.
    pub fn write(&self, core: &Core, batches: Vec<u8>, durability: Durability) -> Result<SequenceNumber> {
        let queue = if durability == Durability::Sync { &self.durable } else { &self.buffered };
        let write = Write { batches, deadline: core.deadline() };
        let done = queue.submit(
            write,
            GROUP_BYTES_MAX,
            |write| write.batches.len(),
            |group, answer| {
                write_group(core, group, durability, answer);
            },
        );
        done.unwrap_or_else(|| Err(Error::OutcomeUnknown { reason: "the thread that sent it panicked".to_owned() }))
    }
}

fn write_group(
    core: &Core,
    group: &mut [Write],
    durability: Durability,
    answer: &mut dyn FnMut(Result<SequenceNumber>),
) {
    let commit = |batches| ForwardedCommit { batches, ..ForwardedCommit::default() };
    if let [one] = group {
        return answer(call(core, committing(commit(std::mem::take(&mut one.batches)), durability), one.deadline));
    }
    let all = group.iter().flat_map(|write| &write.batches).copied().collect();
    // All of the group began to wait after the one that waits for longest.
    let earliest = group.iter().map(|write| write.deadline).min_by_key(|deadline| deadline.ends_ns);
    let deadline = earliest.unwrap_or_else(|| core.deadline());
    match call(core, committing(commit(all), durability), deadline) {
        Ok(sequence) => group.iter().for_each(|_| answer(Ok(sequence))),
        // One of them may have caused the error, and none is applied.
        Err(e) if !e.is_commit_unknown() && !matches!(e, Error::NoOwner { .. } | Error::Closed) => {
            for write in group {
                let batches = std::mem::take(&mut write.batches);
                answer(call(core, committing(commit(batches), durability), write.deadline));
            }
        }
        Err(e) => group.iter().for_each(|_| answer(Err(e.duplicate()))),
    }
}

/// The request of a commit; its session numbers it.
fn committing(commit: ForwardedCommit, durability: Durability) -> Request {
    Request::Commit { number: 0, durability, commit }
}

/// Commits writes that depend on reads.
pub fn commit(core: &Core, commit: ForwardedCommit, durability: Durability) -> Result<SequenceNumber> {
    call(core, committing(commit, durability), core.deadline())
}

/// Runs a request in the owner. Returns a commit that this process must see from now on.
pub fn call(core: &Core, request: Request, deadline: Deadline) -> Result<SequenceNumber> {
    let mut lent = Lent { core, session: take_session(core, deadline)? };
    let session = lent.session.as_mut().ok_or(Error::Closed)?;
    match exchange(core, session, request, deadline) {
        Ok(sequence) => {
            core.must_see(sequence);
            Ok(sequence)
        }
        Err(e) => {
            if e.is_outcome_unknown() {
                // The request may run later. A number of another session then cannot be behind it.
                lent.session = None;
            }
            Err(e)
        }
    }
}

fn exchange(core: &Core, session: &mut Session, mut request: Request, deadline: Deadline) -> Result<SequenceNumber> {
    session.number += 1;
    if let Request::Commit { number, .. } = &mut request {
        *number = session.number;
    }
    let frame = request.frame().ok_or_else(too_long)?;
    let mut was_sent = false;
    let mut pause_us = PAUSE_US_MIN;
    let unknown = |reason: String| Error::OutcomeUnknown { reason };
    loop {
        match core.await_role(deadline) {
            Err(e) if was_sent => return Err(unknown(e.to_string())),
            Err(e) => return Err(e),
            Ok(Some(owner)) => match run_here(&owner, session, request) {
                Err(Unserved::Refused(e)) => return Err(e),
                Err(_) if was_sent => return Err(unknown("this process closed the database".to_owned())),
                Err(_) => return Err(Error::Closed),
                Ok(sequence) => return Ok(sequence),
            },
            Ok(None) => match session.exchange(core.place(), &frame, deadline) {
                Ok(Reply::Done { sequence, .. }) => return Ok(sequence),
                Ok(Reply::Refused(e)) => return Err(e),
                Err(Lost::Refused(e)) if was_sent => return Err(unknown(e.to_string())),
                Err(Lost::Refused(e)) => return Err(e),
                Ok(Reply::Again) | Err(Lost::NotSent) => {}
                Err(Lost::Sent) => was_sent = true,
            },
        }
        if deadline.is_over(core.runtime()) {
            let reason = "the owner did not reply in time".to_owned();
            return Err(if was_sent { unknown(reason) } else { core.no_owner(deadline, reason) });
        }
        let left_us = u64::try_from(deadline.left(core.runtime()).as_micros()).unwrap_or(u64::MAX);
        core.runtime().sleep_us(pause_us.min(left_us));
        pause_us = (2 * pause_us).min(PAUSE_US_MAX);
    }
}

/// Runs a request of a session in this process, which has become the owner.
fn run_here(owner: &Owner, session: &mut Session, request: Request) -> std::result::Result<SequenceNumber, Unserved> {
    session.connection = None;
    match request {
        Request::Commit { number, durability, commit } => {
            let claim = owner.claim(session.id)?;
            let done = owner.commit(&claim, number, commit, durability);
            owner.release(&claim, true);
            done
        }
        Request::Tree(tree) => Ok(owner.tree(&tree)?),
        Request::Function { name } => Ok(owner.function(&name)?),
        Request::Sync => Ok(owner.sync()?),
        Request::Hello { .. } | Request::Goodbye => Ok(0),
    }
}

fn too_long() -> Error {
    let most = super::frame::PAYLOAD_BYTES_MAX;
    Error::InvalidArgument(format!("a commit of a shared database has at most {most} bytes: split it"))
}

/// A session in use by one call.
struct Lent<'a> {
    core: &'a Core,
    session: Option<Session>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut pool = self.core.pool.lock();
        pool.in_use -= 1;
        pool.idle.extend(self.session.take());
        drop(pool);
        self.core.freed.notify_one();
    }
}

/// Takes the session that was used last, or makes one.
fn take_session(core: &Core, deadline: Deadline) -> Result<Option<Session>> {
    let mut pool = core.pool.lock();
    while pool.in_use >= SESSIONS_MAX {
        let left = deadline.left(core.runtime());
        if left.is_zero() {
            return Err(core.no_owner(deadline, "calls of other threads were in progress".to_owned()));
        }
        core.freed.wait_for(&mut pool, left);
    }
    pool.in_use += 1;
    let session = pool.idle.pop();
    drop(pool);
    Ok(Some(session.unwrap_or_else(|| Session::new(core.runtime()))))
}

/// Ends all idle sessions, so that the owner removes their records.
pub fn say_goodbye(core: &Core) {
    let idle = std::mem::take(&mut core.pool.lock().idle);
    let deadline = Deadline::after(core.runtime(), core.timeout_ns.min(200_000_000));
    for connection in idle.into_iter().filter_map(|session| session.connection) {
        let mut connection = connection;
        if let Some(frame) = Request::Goodbye.frame() {
            let _ = connection.exchange(&frame, core.runtime(), deadline);
        }
    }
}
