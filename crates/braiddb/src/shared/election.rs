//! The thread that gives a process its role.
//!
//! It connects to the owner, if there is one. Else it tries to open the database: the winner of the
//! lock becomes the owner, and the others connect to it. A member waits for the end of its
//! connection, which the system closes when the owner ends in any way.

use super::{
    core::{Core, Role},
    forward,
    message::NO_SESSION,
    owner::Owner,
    server::Server,
    session::{Connection, Deadline, Lost, Place, SLICE},
};
use crate::{
    base::{Error, Result},
    db::{Db, Follower, Settings},
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

/// Time after which an owner looks after its socket and its records, and a member after its sessions.
const CARE_NS: u64 = 1_000_000_000;
const CARE: Duration = Duration::from_nanos(CARE_NS);

/// Time for a hello.
const HELLO_NS: u64 = 1_000_000_000;

pub fn run(core: &Arc<Core>) {
    let _ending = Ending(core);
    while !core.is_closing() {
        match follow(core) {
            Ok(true) => {
                core.set_role(Role::Electing(None));
                continue;
            }
            Ok(false) => {
                core.set_role(Role::Failed(replaced()));
                break;
            }
            Err(Lost::Refused(error)) => {
                fail(core, error);
                continue;
            }
            Err(_) => {}
        }
        match open_and_own(core) {
            Ok(()) => break,
            Err(error @ Error::Locked { .. }) => {
                core.set_role(Role::Electing(Some(error)));
                core.runtime().sleep_us(PAUSE_US + core.runtime().random_u64() % PAUSE_US);
            }
            Err(error) => fail(core, error),
        }
    }
}

/// Ends the role with its thread. A panic thus fails the calls of this process at once, and another
/// process can take over.
struct Ending<'a>(&'a Core);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the thread of the shared database panicked: open it again".to_owned();
            self.0.set_role(Role::Failed(Error::ReadOnly { reason }));
        }
        self.0.end();
    }
}

/// Marks the core as opening until its drop, which a panic runs, too. An open waits as long.
struct Opening<'a>(&'a Core);

impl Opening<'_> {
    fn begin(core: &Core) -> Opening<'_> {
        core.is_opening.store(true, Ordering::Release);
        Opening(core)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.is_opening.store(false, Ordering::Release);
    }
}

fn fail(core: &Core, error: Error) {
    tracing::warn!(%error, "this process neither owns the shared database nor reaches its owner");
    core.set_role(Role::Electing(Some(error)));
    core.runtime().sleep_us(ERROR_PAUSE_US);
}

/// Is a member until the owner ends. Fails if there is no owner. Returns false if the owner has
/// another database.
fn follow(core: &Arc<Core>) -> std::result::Result<bool, Lost> {
    let deadline = Deadline::after(core.runtime(), HELLO_NS);
    // Accepts any incarnation: after a refusal it would be unknown whether a retry can succeed.
    let place = Place { incarnation: 0, ..core.place() };
    let (connection, incarnation) = Connection::open(place, NO_SESSION, deadline)?;
    let expected = core.place().incarnation;
    if expected != 0 && expected != incarnation {
        return Ok(false);
    }
    core.incarnation.store(incarnation, Ordering::Relaxed);
    *core.watch.lock() = Some(Arc::clone(&connection.stream));
    if core.follower().is_none() {
        // The owner serves, so there is a database.
        let follower = Follower::open_with(core.settings.clone(), &core.dir, Some(CARE)).map_err(Lost::Refused)?;
        core.set_follower(follower);
    }
    core.set_role(Role::Member);
    await_end(core, &connection.stream);
    tracing::debug!("the owner of the shared database has ended");
    core.watch.lock().take();
    Ok(true)
}

/// Waits for the end of a connection on which nothing is sent.
fn await_end(core: &Arc<Core>, stream: &LocalStream) {
    while !core.is_closing() {
        match stream.wait_readable(CARE) {
            Ok(false) => forward::end_idle_sessions(core),
            Ok(true) if stream.try_read(&mut [0; 64]).is_ok_and(|len| len > 0) => {}
            _ => return,
        }
    }
}

/// Opens the database, unless another process has it, and is the owner until the end.
pub(super) fn open_and_own(core: &Arc<Core>) -> Result<()> {
    let opening = Opening::begin(core);
    own(core, open(core)?, opening)
}

fn open(core: &Core) -> Result<Db> {
    // A handle that had a role must not make another database.
    let is_first = core.incarnation.load(Ordering::Relaxed) == 0;
    let settings = Settings { create: core.settings.create && is_first, ..core.settings.clone() };
    Db::open_with(settings, &core.dir)
}

/// Is the owner until this process closes the database.
fn own(core: &Arc<Core>, db: Db, opening: Opening<'_>) -> Result<()> {
    let expected = core.incarnation.load(Ordering::Relaxed);
    if expected != 0 && expected != db.incarnation() {
        drop(db);
        core.set_role(Role::Failed(replaced()));
        return Ok(());
    }
    let owner = Arc::new(Owner::new(db, Arc::clone(&core.settings.runtime))?);
    let Some(mut listener) = listen(core, expected == 0)? else {
        close(core, &owner);
        return Ok(());
    };
    core.incarnation.store(owner.incarnation(), Ordering::Relaxed);
    let mut server = Server::new(Arc::clone(&owner), Arc::clone(&core.settings.runtime));
    core.set_owner(Arc::clone(&owner));
    drop(opening);
    let mut care = Deadline::after(core.runtime(), 0);
    while !core.is_closing() {
        match listener.accept(CARE, SLICE) {
            Ok(Some(stream)) => {
                if let Err(error) = server.serve(stream) {
                    tracing::warn!(%error, "a connection to the shared database was refused");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection to the shared database was accepted");
                core.runtime().sleep_us(ERROR_PAUSE_US);
            }
        }
        if care.is_over(core.runtime()) {
            care = Deadline::after(core.runtime(), CARE_NS);
            if !listener.is_reachable()
                && let Err(error) = listener.renew(&core.dir)
            {
                tracing::warn!(%error, "other processes do not reach the shared database");
            }
            owner.remove_old_records();
        }
    }
    // While this process has the lock, no other one has a socket here.
    drop(listener);
    server.end();
    close(core, &owner);
    Ok(())
}

fn close(core: &Core, owner: &Owner) {
    core.end();
    *core.close_error.lock() = owner.db().close_refused().err();
}

/// Starts to listen for other processes. The first open returns a failure. Later opens retry, since
/// the database is already recovered. Returns `None` if the database is closed meanwhile.
fn listen(core: &Core, is_first: bool) -> Result<Option<LocalListener>> {
    while !core.is_closing() {
        match LocalListener::bind(&core.dir) {
            Ok(listener) => return Ok(Some(listener)),
            Err(e) => {
                let error = Error::io("listen for other processes in", &core.dir, e);
                if is_first {
                    return Err(error);
                }
                fail(core, error);
            }
        }
    }
    Ok(None)
}

/// The error of a handle whose directory has another database now.
pub fn replaced() -> Error {
    Error::InvalidArgument("the database was replaced by another one: open it again".to_owned())
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
