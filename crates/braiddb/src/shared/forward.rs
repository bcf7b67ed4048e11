//! Calls that run in the owner, which may be this process.
//!
//! A call that loses its owner waits for the next one and sends its request again; the session's
//! record keeps it from running twice. Writes that depend on no reads, of several threads, share a
//! request, as commits share a log record.
//!
//! INVARIANT S3: a call returns at its own deadline. The leader of a group waits until its own. It
//! leaves an unfinished request to the others of the group, who go on with it.

use super::{
    core::Core,
    held::Held,
    message::{Reply, Request},
    owner::{Owner, Unserved, Wanted},
    session::{Deadline, Lost, Session},
};
use crate::{
    base::{Error, Result, SequenceNumber},
    commit::CommitQueue,
    db::{Durability, ForwardedCommit},
};
use parking_lot::Mutex;
use std::sync::Arc;

/// Maximum sessions of a process; more calls wait.
const SESSIONS_MAX: usize = 16;

/// Bytes of writes above which a request takes no more.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// First pause before a request is sent again, and the longest.
const PAUSE_US_MIN: u64 = 500;
const PAUSE_US_MAX: u64 = 20_000;

/// Time after which an unused session ends: it takes a thread and a descriptor of the owner.
const IDLE_NS: u64 = 10_000_000_000;

/// Time in microseconds between the end of a wait in the owner and the client's deadline, at most. In
/// it the refusal arrives, so that the client learns that nothing was written. On a machine with
/// twenty times more threads than processors, 50 ms were too short.
const REPLY_US: u64 = 200_000;

/// Maximum time of a goodbye.
const GOODBYE_NS: u64 = 200_000_000;

/// Writes that wait for a request that takes them.
#[derive(Debug, Default)]
pub struct WriteQueues {
    buffered: CommitQueue<Write, Answer>,
    durable: CommitQueue<Write, Answer>,
}

#[derive(Debug)]
pub(super) struct Write {
    pub batches: Vec<u8>,
    pub deadline: Deadline,
}

/// The leader's answer to a write of its group.
#[derive(Debug)]
pub(super) enum Answer {
    Done(Result<SequenceNumber>),
    /// The group is not applied, and another write may be the reason: send these batches alone.
    Alone(Vec<u8>),
    /// The leader had no more time for the group's request.
    GoOn(Arc<Mutex<Attempt>>),
}

impl WriteQueues {
    /// Commits writes that depend on no reads.
    pub fn write(
        &self,
        core: &Arc<Core>,
        batches: Vec<u8>,
        durability: Durability,
        deadline: Deadline,
    ) -> Result<SequenceNumber> {
        let queue = if durability == Durability::Sync { &self.durable } else { &self.buffered };
        let answer = queue.submit(
            Write { batches, deadline },
            GROUP_BYTES_MAX,
            |write| write.batches.len(),
            |_| (),
            |group, answer| write_group(core, group, durability, answer),
        );
        finish(core, answer, durability, deadline)
    }
}

/// Returns the outcome of a write from the leader's answer; `None` if the leader panicked.
pub(super) fn finish(
    core: &Arc<Core>,
    answer: Option<Answer>,
    durability: Durability,
    deadline: Deadline,
) -> Result<SequenceNumber> {
    match answer {
        Some(Answer::Done(done)) => done,
        Some(Answer::Alone(batches)) => call(core, committing(of_batches(batches), durability), deadline),
        Some(Answer::GoOn(attempt)) => match attempt.try_lock_for(deadline.left(core.runtime())) {
            Some(mut attempt) => attempt.run(deadline),
            None => Err(unknown("the owner did not reply in time")),
        },
        None => Err(unknown("the thread that sent it panicked")),
    }
}

fn of_batches(batches: Vec<u8>) -> ForwardedCommit {
    ForwardedCommit { batches, ..ForwardedCommit::default() }
}

/// Sends a group of writes in one request, and answers each.
pub(super) fn write_group(
    core: &Arc<Core>,
    group: &mut [Write],
    durability: Durability,
    answer: &mut dyn FnMut(Answer),
) {
    let Some(first) = group.first() else { return };
    let deadline = first.deadline;
    if let [one] = group {
        let request = committing(of_batches(std::mem::take(&mut one.batches)), durability);
        return answer(Answer::Done(call(core, request, deadline)));
    }
    let all = group.iter().flat_map(|write| &write.batches).copied().collect();
    let mut attempt = match Attempt::begin(core, committing(of_batches(all), durability), deadline) {
        Ok(attempt) => attempt,
        // Only the leader has had no session until its deadline.
        Err(e) => {
            answer(Answer::Done(Err(e)));
            return group[1..].iter_mut().for_each(|write| answer(Answer::Alone(std::mem::take(&mut write.batches))));
        }
    };
    match attempt.run(deadline) {
        Ok(sequence) => group.iter().for_each(|_| answer(Answer::Done(Ok(sequence)))),
        Err(e) if attempt.is_finished() && !is_of_one(&e) => {
            group.iter().for_each(|_| answer(Answer::Done(Err(e.duplicate()))));
        }
        Err(_) if attempt.is_finished() => {
            group.iter_mut().for_each(|write| answer(Answer::Alone(std::mem::take(&mut write.batches))));
        }
        // The leader reports that nothing was written, so no other thread may send its write.
        Err(e) if !attempt.was_sent => {
            answer(Answer::Done(Err(e)));
            group[1..].iter_mut().for_each(|write| answer(Answer::Alone(std::mem::take(&mut write.batches))));
        }
        Err(e) => {
            answer(Answer::Done(Err(e)));
            let attempt = Arc::new(Mutex::new(attempt));
            group[1..].iter().for_each(|_| answer(Answer::GoOn(Arc::clone(&attempt))));
        }
    }
}

/// Returns whether one write of a group may be the reason of an error that concerns the others not.
fn is_of_one(error: &Error) -> bool {
    !error.is_commit_unknown() && !matches!(error, Error::Closed)
}

/// The request of a commit; its session numbers it.
fn committing(commit: ForwardedCommit, durability: Durability) -> Request {
    Request::Commit { number: 0, left_us: 0, durability, commit }
}

/// Commits writes that depend on reads.
pub fn commit(
    core: &Arc<Core>,
    commit: ForwardedCommit,
    durability: Durability,
    deadline: Deadline,
) -> Result<SequenceNumber> {
    call(core, committing(commit, durability), deadline)
}

/// Commits in a session that the caller has taken.
pub(super) fn commit_in(
    lent: Lent,
    commit: ForwardedCommit,
    durability: Durability,
    deadline: Deadline,
) -> Result<SequenceNumber> {
    Attempt::with(lent, committing(commit, durability)).run(deadline)
}

/// Runs a request in the owner. Returns a commit that this process must see from now on.
pub fn call(core: &Arc<Core>, request: Request, deadline: Deadline) -> Result<SequenceNumber> {
    Attempt::begin(core, request, deadline)?.run(deadline)
}

fn unknown(reason: impl Into<String>) -> Error {
    Error::OutcomeUnknown { reason: reason.into() }
}

/// A request of a session, until its outcome is known.
#[derive(Debug)]
pub(super) struct Attempt {
    lent: Lent,
    request: Request,
    /// An owner may have run it.
    was_sent: bool,
    outcome: Option<Result<SequenceNumber>>,
    /// Why the last try did not have an outcome.
    reason: Option<String>,
    pause_us: u64,
}

impl Attempt {
    fn begin(core: &Arc<Core>, request: Request, deadline: Deadline) -> Result<Attempt> {
        Ok(Attempt::with(take_session(core, deadline)?, request))
    }

    /// Makes a request of a session that the caller has taken.
    fn with(mut lent: Lent, mut request: Request) -> Attempt {
        lent.session.number += 1;
        if let Request::Commit { number, .. } = &mut request {
            *number = lent.session.number;
        }
        Attempt { lent, request, was_sent: false, outcome: None, reason: None, pause_us: PAUSE_US_MIN }
    }

    fn is_finished(&self) -> bool {
        self.outcome.is_some()
    }

    /// Tries until the request has an outcome. After the deadline the call may be repeated, with a
    /// later one.
    fn run(&mut self, deadline: Deadline) -> Result<SequenceNumber> {
        let core = Arc::clone(&self.lent.core);
        loop {
            match &self.outcome {
                Some(Ok(sequence)) => {
                    core.must_see(*sequence);
                    return Ok(*sequence);
                }
                Some(Err(e)) => return Err(e.duplicate()),
                None => {}
            }
            match core.await_role(deadline) {
                Ok(Some(owner)) => self.outcome = Some(self.run_here(&owner, deadline)),
                Ok(None) => self.outcome = self.run_there(deadline),
                Err(Error::NoOwner { reason, .. }) => self.reason = Some(reason),
                Err(e) => self.outcome = Some(Err(self.failed(e))),
            }
            if self.outcome.is_some() {
                continue;
            }
            let left_us = deadline.left_ns(core.runtime()) / 1000;
            if left_us == 0 {
                let reason = self.reason.as_deref().unwrap_or("the owner did not reply in time");
                return Err(if self.was_sent { unknown(reason) } else { core.no_owner(deadline, reason.to_owned()) });
            }
            core.runtime().sleep_us(self.pause_us.min(left_us));
            self.pause_us = (2 * self.pause_us).min(PAUSE_US_MAX);
        }
    }

    /// The error of a request that no owner will run from here on.
    fn failed(&self, error: Error) -> Error {
        if self.was_sent && !error.is_commit_unknown() { unknown(error.to_string()) } else { error }
    }

    /// Sends the request to the owner. `None` if it must be sent again.
    fn run_there(&mut self, deadline: Deadline) -> Option<Result<SequenceNumber>> {
        let core = &self.lent.core;
        let mut is_quick = false;
        if let Request::Commit { left_us, durability, .. } = &mut self.request {
            *left_us = left_for_owner_us(core, deadline);
            is_quick = *durability != Durability::Sync;
        }
        let Some(frame) = self.request.frame() else { return Some(Err(too_long())) };
        match self.lent.session.exchange(core.place(), &frame, deadline, is_quick) {
            Ok(Reply::Done { sequence, .. }) => Some(Ok(sequence)),
            // The owner knows that it has not run it.
            Ok(Reply::Refused(e)) => Some(Err(e)),
            Err(Lost::Refused(e)) => Some(Err(self.failed(e))),
            Ok(Reply::Again | Reply::Placed(_)) | Err(Lost::NotSent) => None,
            Err(Lost::Sent) => {
                self.was_sent = true;
                None
            }
        }
    }

    /// Runs the request in this process, which has become the owner.
    fn run_here(&mut self, owner: &Owner, deadline: Deadline) -> Result<SequenceNumber> {
        let session = &mut self.lent.session;
        session.connection = None;
        match &mut self.request {
            Request::Commit { number, durability, commit, .. } => {
                let claim = match owner.claim(session.id) {
                    Ok(claim) => claim,
                    // It is not known whether an earlier owner has run it.
                    Err(e) => return Err(self.failed(e)),
                };
                let (number, durability, ends_ns) = (*number, *durability, deadline.ends_ns);
                let commit = std::mem::take(commit);
                let done = owner.commit(&claim, &mut Held::default(), Wanted { number, commit, durability, ends_ns });
                owner.release(&claim, true);
                match done {
                    Ok(sequence) => Ok(sequence),
                    Err(Unserved::Refused(e)) => Err(e),
                    Err(Unserved::Closing | Unserved::Superseded) => Err(self.failed(Error::Closed)),
                }
            }
            Request::Tree(tree) => owner.db().waiting_until(deadline.ends_ns, |_| owner.tree(tree)),
            Request::Function { name } => owner.db().waiting_until(deadline.ends_ns, |_| owner.function(name)),
            Request::Sync => owner.sync(),
            // Of a connection, which this process has none of.
            _ => Ok(0),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let is_unknown = match &self.outcome {
            Some(outcome) => outcome.as_ref().is_err_and(Error::is_outcome_unknown),
            None => self.was_sent,
        };
        if is_unknown {
            // The request may run later. A number of another session then cannot be behind it.
            self.lent.session = Session::new(self.lent.core.runtime());
        }
    }
}

fn too_long() -> Error {
    let most = super::frame::PAYLOAD_BYTES_MAX;
    Error::InvalidArgument(format!("a commit of a shared database has at most {most} bytes: split it"))
}

/// Returns the time that a request still has in the owner, in microseconds.
pub(super) fn left_for_owner_us(core: &Core, deadline: Deadline) -> u64 {
    let left_us = deadline.left_ns(core.runtime()) / 1000;
    left_us - REPLY_US.min(left_us / 4)
}

/// A session in use by one call, or by one exclusive transaction.
#[derive(Debug)]
pub(super) struct Lent {
    pub core: Arc<Core>,
    pub session: Session,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut session = std::mem::take(&mut self.session);
        session.used_ns = self.core.runtime().monotonic_coarse_ns();
        let mut pool = self.core.pool.lock();
        pool.in_use -= 1;
        pool.idle.push(session);
        drop(pool);
        self.core.freed.notify_one();
    }
}

/// Takes the session that was used last, or makes one.
pub(super) fn take_session(core: &Arc<Core>, deadline: Deadline) -> Result<Lent> {
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
    let session = session.unwrap_or_else(|| Session::new(core.runtime()));
    Ok(Lent { core: Arc::clone(core), session })
}

/// Ends the sessions that no call has used for some time.
pub fn end_idle_sessions(core: &Core) {
    end_sessions_idle_at(core, core.runtime().monotonic_coarse_ns());
}

pub(super) fn end_sessions_idle_at(core: &Core, now_ns: u64) {
    let mut pool = core.pool.lock();
    let is_idle = |session: &mut Session| now_ns.saturating_sub(session.used_ns) >= IDLE_NS;
    let idle: Vec<Session> = pool.idle.extract_if(.., is_idle).collect();
    drop(pool);
    end_sessions(core, idle);
}

/// Ends all idle sessions, so that the owner removes their records.
pub fn say_goodbye(core: &Core) {
    let idle = std::mem::take(&mut core.pool.lock().idle);
    end_sessions(core, idle);
}

fn end_sessions(core: &Core, sessions: Vec<Session>) {
    let deadline = Deadline::after(core.runtime(), core.timeout_ns.min(GOODBYE_NS));
    sessions.into_iter().for_each(|session| session.say_goodbye(core.runtime(), deadline));
}
