//! The state of a process that shares a database: its role, and the waits for a role.
//!
//! | role | reads | writes |
//! |---|---|---|
//! | owner | the open database | commit here |
//! | member | a follower | go to the owner |
//! | electing | the last follower, if any | wait |
//! | failed | fail | fail |
//!
//! INVARIANT S2: the lock of the database decides who is the owner; nothing else does. The socket
//! only finds the owner. An owner stays one until it closes.

use super::{
    owner::Owner,
    session::{Deadline, Place, Session},
};
use crate::{
    base::{Error, Result},
    db::{Follower, Settings},
    platform::{LocalStream, Runtime},
};
use parking_lot::{Condvar, Mutex, RwLock};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Pause between two checks of a recovery that takes longer than the timeout.
const OPENING_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct Core {
    pub settings: Settings,
    pub dir: PathBuf,
    pub timeout_ns: u64,
    /// The process that opened the database; a forked child must not use it.
    process: u32,
    role: Mutex<Role>,
    changed: Condvar,
    /// Set with the role of owner.
    owner: RwLock<Option<Arc<Owner>>>,
    /// Set with the first role of member.
    follower: RwLock<Option<Arc<Follower>>>,
    /// The last commit that this process has got a reply for.
    pub must_see: AtomicU64,
    /// 0 until it is known.
    pub incarnation: AtomicU64,
    pub is_closing: AtomicBool,
    /// Whether this process opens the database now, until it has its role. It has the lock, if that
    /// takes long.
    pub is_opening: AtomicBool,
    /// The connection that reports the end of the owner.
    pub watch: Mutex<Option<Arc<LocalStream>>>,
    pub pool: Mutex<Pool>,
    pub freed: Condvar,
    /// The error of the owner's close.
    pub close_error: Mutex<Option<Error>>,
}

/// Sessions that run no request.
#[derive(Debug, Default)]
pub struct Pool {
    pub idle: Vec<Session>,
    pub in_use: usize,
}

#[derive(Debug)]
pub enum Role {
    /// With the reason of the last failure.
    Electing(Option<Error>),
    Member,
    Owner,
    /// The handle is of no use any more.
    Failed(Error),
    Closed,
}

impl Core {
    pub fn new(settings: Settings, dir: PathBuf, timeout_ns: u64) -> Core {
        Core {
            settings,
            dir,
            timeout_ns,
            process: std::process::id(),
            role: Mutex::new(Role::Electing(None)),
            changed: Condvar::new(),
            owner: RwLock::default(),
            follower: RwLock::default(),
            must_see: AtomicU64::new(0),
            incarnation: AtomicU64::new(0),
            is_closing: AtomicBool::new(false),
            is_opening: AtomicBool::new(false),
            watch: Mutex::default(),
            pool: Mutex::default(),
            freed: Condvar::new(),
            close_error: Mutex::default(),
        }
    }

    pub fn runtime(&self) -> &dyn Runtime {
        &*self.settings.runtime
    }

    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.runtime(), self.timeout_ns)
    }

    /// Returns the deadline of a call with a timeout of its own.
    pub fn deadline_within(&self, timeout: Duration) -> Deadline {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline::after(self.runtime(), timeout_ns.min(self.timeout_ns))
    }

    pub fn place(&self) -> Place<'_> {
        Place { dir: &self.dir, runtime: self.runtime(), incarnation: self.incarnation.load(Ordering::Relaxed) }
    }

    /// Fails in a process that was forked after the open: it has none of the threads.
    pub fn check_process(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let detail = "a shared database was opened before this process was forked: open it in each process";
        Err(Error::InvalidArgument(detail.to_owned()))
    }

    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub fn owner(&self) -> Option<Arc<Owner>> {
        self.owner.read().clone()
    }

    pub fn follower(&self) -> Option<Arc<Follower>> {
        self.follower.read().clone()
    }

    pub fn set_follower(&self, follower: Follower) {
        follower.db().refuse_close();
        *self.follower.write() = Some(Arc::new(follower));
    }

    /// Changes the role, unless it is final.
    pub fn set_role(&self, role: Role) {
        let mut now = self.role.lock();
        if !matches!(*now, Role::Closed | Role::Failed(_)) {
            *now = role;
            self.changed.notify_all();
        }
    }

    pub fn set_owner(&self, owner: Arc<Owner>) {
        *self.owner.write() = Some(owner);
        self.set_role(Role::Owner);
        // Cursors of its states stay valid.
        drop(self.follower.write().take());
    }

    pub fn end(&self) {
        self.set_role(Role::Closed);
        drop(self.owner.write().take());
        drop(self.follower.write().take());
    }

    /// Waits for a role. Returns the owner if that is this process.
    pub fn await_role(&self, deadline: Deadline) -> Result<Option<Arc<Owner>>> {
        let mut role = self.role.lock();
        loop {
            match &*role {
                Role::Owner => {
                    drop(role);
                    return self.owner().map(Some).ok_or(Error::Closed);
                }
                Role::Member => return Ok(None),
                Role::Failed(error) => return Err(error.duplicate()),
                Role::Closed => return Err(Error::Closed),
                Role::Electing(failure) => {
                    let left = deadline.left(self.runtime());
                    if left.is_zero() {
                        let reason =
                            failure.as_ref().map_or_else(|| "no process took over".to_owned(), Error::to_string);
                        return Err(self.no_owner(deadline, reason));
                    }
                    self.changed.wait_for(&mut role, left);
                }
            }
        }
    }

    /// Waits for the first role. A failure of this process to open the database ends the wait. While
    /// this process recovers the database, no deadline does: the recovery would begin again.
    pub fn await_first_role(&self, deadline: Deadline) -> Result<()> {
        loop {
            let mut role = self.role.lock();
            match &mut *role {
                Role::Electing(failure) => {
                    if let Some(failure) = failure.take_if(|failure| !matches!(failure, Error::Locked { .. })) {
                        return Err(failure);
                    }
                }
                Role::Failed(error) => return Err(error.duplicate()),
                _ => return Ok(()),
            }
            let left = deadline.left(self.runtime());
            if left.is_zero() && !self.is_opening.load(Ordering::Acquire) {
                drop(role);
                return self.await_role(deadline).map(drop);
            }
            self.changed.wait_for(&mut role, left.max(OPENING_PAUSE));
        }
    }

    pub fn no_owner(&self, deadline: Deadline, reason: String) -> Error {
        Error::NoOwner { path: self.dir.clone(), waited: deadline.waited(self.runtime()), reason }
    }

    /// Records that this process must see a commit in its later reads.
    pub fn must_see(&self, sequence: u64) {
        self.must_see.fetch_max(sequence, Ordering::AcqRel);
    }

    pub fn is_owner(&self) -> bool {
        matches!(*self.role.lock(), Role::Owner)
    }
}
