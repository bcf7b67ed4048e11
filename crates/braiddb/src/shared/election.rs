//! The thread that gives a process its role.
//!
//! It connects to the owner, if there is one. Else it tries to open the database: the winner of the
//! lock becomes the owner, and the others connect to it. A member waits for the end of its
//! connection, which the system closes when the owner ends in any way.

use super::{
    core::{Core, Role},
    frame::FrameError,
    message::NO_SESSION,
    owner::Owner,
    server::Server,
    session::{Connection, Deadline, Lost, SLICE},
};
use crate::{
    base::{Error, Result},
    db::{Db, Follower},
    platform::{LocalListener, LocalStream},
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Pause between tries while another process opens or closes the database.
const PAUSE_US: u64 = 2_000;
/// Pause after an error.
const ERROR_PAUSE_US: u64 = 50_000;

/// Time after which the owner looks after its socket and its records.
const CARE: Duration = Duration::from_secs(1);

/// Time for a hello.
const HELLO_NS: u64 = 1_000_000_000;

pub fn run(core: &Arc<Core>) {
    while !core.is_closing() {
        match follow(core) {
            Ok(()) => {
                core.set_role(Role::Electing(None));
                continue;
            }
            Err(Lost::Refused(error)) => {
                fail(core, error);
                continue;
            }
            Err(_) => {}
        }
        match Db::open_with(core.settings.clone(), &core.dir) {
            Ok(db) => match own(core, db) {
                Ok(()) => break,
                Err(error) => fail(core, error),
            },
            Err(error @ Error::Locked { .. }) => {
                core.set_role(Role::Electing(Some(error)));
                core.runtime().sleep_us(PAUSE_US + core.runtime().random_u64() % PAUSE_US);
            }
            Err(error) => fail(core, error),
        }
    }
    core.end();
}

fn fail(core: &Core, error: Error) {
    tracing::warn!(%error, "this process neither owns the shared database nor reaches its owner");
    core.set_role(Role::Electing(Some(error)));
    core.runtime().sleep_us(ERROR_PAUSE_US);
}

/// Is a member until the owner ends. Fails if there is no owner.
fn follow(core: &Arc<Core>) -> std::result::Result<(), Lost> {
    let deadline = Deadline::after(core.runtime(), HELLO_NS);
    let (mut connection, incarnation) = Connection::open(core.place(), NO_SESSION, deadline)?;
    core.incarnation.store(incarnation, Ordering::Relaxed);
    *core.watch.lock() = connection.stream.duplicate().ok();
    if core.follower().is_none() {
        // The owner serves, so there is a database.
        let follower = Follower::open_with(core.settings.clone(), &core.dir, Some(CARE)).map_err(Lost::Refused)?;
        core.set_follower(follower);
    }
    core.set_role(Role::Member);
    let ended = connection.await_end(&mut || core.is_closing());
    tracing::debug!(?ended, "the owner of the shared database has ended");
    core.watch.lock().take();
    Ok(())
}

/// Is the owner until this process closes the database.
fn own(core: &Arc<Core>, db: Db) -> Result<()> {
    let owner = Arc::new(Owner::new(db, Arc::clone(&core.settings.runtime))?);
    let listener = LocalListener::bind(&core.dir);
    let mut listener = listener.map_err(|e| Error::io("listen for other processes in", &core.dir, e))?;
    core.incarnation.store(owner.incarnation(), Ordering::Relaxed);
    let mut server = Server::new(Arc::clone(&owner), Arc::clone(&core.settings.runtime));
    core.set_owner(Arc::clone(&owner));
    while !core.is_closing() {
        match listener.accept(CARE) {
            Ok(Some(stream)) => {
                if let Err(error) = server.serve(stream) {
                    tracing::warn!(%error, "a connection to the shared database was refused");
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection to the shared database was accepted");
                core.runtime().sleep_us(ERROR_PAUSE_US);
            }
        }
        if !listener.is_reachable()
            && let Err(error) = listener.renew(&core.dir)
        {
            tracing::warn!(%error, "other processes do not reach the shared database");
        }
        owner.remove_old_records();
    }
    // While this process has the lock, no other one has a socket here.
    drop(listener);
    server.end();
    core.end();
    *core.close_error.lock() = owner.db().clone().close().err();
    Ok(())
}

/// Ends the thread's wait, after `is_closing` is set.
pub fn wake(core: &Core) {
    if let Some(watch) = &*core.watch.lock() {
        watch.shut_down();
    }
    if core.is_owner() {
        drop(LocalStream::connect(&core.dir, SLICE));
    }
}

impl Connection {
    fn await_end(&mut self, is_closing: &mut dyn FnMut() -> bool) -> FrameError {
        loop {
            match self.frames.read(&mut &self.stream, is_closing) {
                Ok(_) => {}
                Err(end) => return end,
            }
        }
    }
}
