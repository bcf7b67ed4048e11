//! A connection of one transaction or stream of a member.
//!
//! The owner keeps an exclusive right and streams for it (`held.rs`). A lost connection loses them, so
//! a seat never connects again: the call is a conflict, and the caller begins again.

use super::{
    core::Core,
    forward::{self, Lent, left_for_owner_us},
    message::{Reply, Request},
    session::{Deadline, Lost},
};
use crate::{
    base::{Error, Result, SequenceNumber},
    db::{Durability, ForwardedCommit},
};
use std::sync::Arc;

/// First pause before the owner is asked again, and the longest.
const PAUSE_US_MIN: u64 = 500;
const PAUSE_US_MAX: u64 = 20_000;

/// Maximum time to give up what the owner keeps. The end of the connection does it, too.
const END_NS: u64 = 200_000_000;

#[derive(Debug)]
pub(super) struct Seat {
    lent: Option<Lent>,
}

impl Seat {
    /// Sends the first request, of which the time left is a part, until the owner replies. `None` if
    /// this process is the owner.
    pub fn take(core: &Arc<Core>, deadline: Deadline, request: impl Fn(u64) -> Request) -> Result<Option<Seat>> {
        let mut lent = None;
        let mut pause_us = PAUSE_US_MIN;
        loop {
            if core.await_role(deadline)?.is_some() {
                return Ok(None);
            }
            let mut asking = match lent.take() {
                Some(lent) => lent,
                None => forward::take_session(core, deadline)?,
            };
            let frame = request(left_for_owner_us(core, deadline)).frame().ok_or(Error::Closed)?;
            match asking.session.exchange(core.place(), &frame, deadline, true) {
                Ok(Reply::Done { sequence, .. }) => {
                    core.must_see(sequence);
                    return Ok(Some(Seat { lent: Some(asking) }));
                }
                Ok(Reply::Refused(e)) | Err(Lost::Refused(e)) => return Err(e),
                Ok(Reply::Again | Reply::Placed(_)) | Err(Lost::NotSent | Lost::Sent) => {}
            }
            lent = Some(asking);
            let left_us = deadline.left_ns(core.runtime()) / 1000;
            if left_us == 0 {
                return Err(core.no_owner(deadline, "the owner did not reply in time".to_owned()));
            }
            core.runtime().sleep_us(pause_us.min(left_us));
            pause_us = (2 * pause_us).min(PAUSE_US_MAX);
        }
    }

    /// Sends a further request on the same connection.
    pub fn exchange(&mut self, request: &Request) -> Result<Reply> {
        let lost = || Error::conflict("the owner that had its exclusive right or its streams has ended");
        let Some(Lent { core, session }) = &mut self.lent else { return Err(Error::Closed) };
        core.check_process()?;
        let (Some(frame), Some(mut connection)) = (request.frame(), session.connection.take()) else {
            return Err(lost());
        };
        match connection.exchange(&frame, core.runtime(), core.deadline(), true) {
            Ok(Reply::Refused(error)) => {
                session.connection = Some(connection);
                Err(error)
            }
            Ok(Reply::Again) | Err(_) => Err(lost()),
            Ok(reply) => {
                session.connection = Some(connection);
                Ok(reply)
            }
        }
    }

    /// Commits, which ends what the owner keeps.
    pub fn commit(
        mut self,
        commit: ForwardedCommit,
        durability: Durability,
        deadline: Deadline,
    ) -> Result<SequenceNumber> {
        let lent = self.lent.take().ok_or(Error::Closed)?;
        forward::commit_in(lent, commit, durability, deadline)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(mut lent) = self.lent.take() else { return };
        if lent.core.check_process().is_err() {
            return std::mem::forget(lent);
        }
        // Without a reply the connection is dropped, and so is all that the owner keeps for it.
        let Some(connection) = lent.session.connection.take() else { return };
        lent.session.connection = connection.asked_to_end(lent.core.runtime(), END_NS);
    }
}
