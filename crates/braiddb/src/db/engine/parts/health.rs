//! The health of a database: open, closing, closed, read-only, poisoned.

use crate::{
    base::{Error, Result},
    platform::FileLock,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};

/// Decides if a database takes reads and writes.
///
/// INVARIANT E1: a caller that changes files holds `gate` shared. The close takes it exclusively
/// before it releases the directory's lock, so nothing is written afterwards.
#[derive(Debug, Default)]
pub struct Health {
    is_read_only: bool,
    pub closing: AtomicBool,
    /// Set if the close made room for a follower's newer state.
    pub is_superseded: AtomicBool,
    pub gate: RwLock<()>,
    failure: Mutex<Option<String>>,
    failed: AtomicBool,
    /// `None` if the database is read-only or closed.
    pub lock: Mutex<Option<Box<dyn FileLock>>>,
}

impl Health {
    pub fn new(is_read_only: bool, lock: Option<Box<dyn FileLock>>) -> Health {
        Health { is_read_only, lock: Mutex::new(lock), ..Health::default() }
    }

    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        let closing = self.closing.load(Ordering::Acquire);
        if closing || self.is_read_only || self.has_failed() {
            return self.refuse_to_write();
        }
        Ok(())
    }

    #[cold]
    fn refuse_to_write(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        if self.is_read_only {
            return Err(Error::ReadOnly { reason: "it was opened for reading only".to_owned() });
        }
        Err(Error::ReadOnly { reason: self.failure().unwrap_or_default() })
    }

    #[inline]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Returns the reason of the poisoning, unless it was the close.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Enters the gate. A thread must not enter twice: a closing thread may wait in between.
    pub fn enter(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let inside = self.gate.read();
        self.check_open()?;
        Ok(inside)
    }

    /// Enters the gate past a closing thread, which may wait for a thread that waits for the
    /// caller.
    pub fn enter_past_closing(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let inside = self.gate.read_recursive();
        self.check_open()?;
        Ok(inside)
    }

    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closing.load(Ordering::Acquire) { self.refuse_to_read() } else { Ok(()) }
    }

    #[cold]
    fn refuse_to_read(&self) -> Result<()> {
        Err(if self.is_superseded.load(Ordering::Acquire) { Error::Superseded } else { Error::Closed })
    }

    /// Refuses writes from now on. The first reason is kept and logged. Work ended by the close
    /// (`is_closed`) leaves no reason, so that a real failure during the close is still recorded.
    /// Returns whether this is the first reason.
    pub fn poison(&self, reason: &str, is_closed: bool) -> bool {
        let mut failure = self.failure.lock();
        let is_first = failure.is_none() && !is_closed;
        if is_first {
            tracing::error!(reason, "the database takes no more writes");
            *failure = Some(reason.to_owned());
        }
        self.failed.store(true, Ordering::Release);
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::Health;
    use crate::base::Error;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn check_writable_when_open_passes() {
        let health = Health::new(false, None);
        assert!(health.check_writable().is_ok() && health.check_open().is_ok() && !health.has_failed());
    }

    #[test]
    fn check_writable_when_read_only_says_so() {
        let health = Health::new(true, None);
        assert!(matches!(health.check_writable(), Err(Error::ReadOnly { reason }) if reason.contains("reading only")));
        assert!(health.check_open().is_ok());
    }

    #[test]
    fn poison_twice_keeps_first_reason() {
        let health = Health::new(false, None);
        health.poison("the device is gone", false);
        health.poison("another reason", false);
        assert!(matches!(health.check_writable(), Err(Error::ReadOnly { reason }) if reason == "the device is gone"));
        assert!(health.check_open().is_ok(), "reads go on");
    }

    #[test]
    fn poison_by_close_leaves_room_for_real_reason() {
        let health = Health::new(false, None);
        health.poison("closed", true);
        assert!(health.has_failed() && health.failure().is_none());
        health.poison("the last sync failed", false);
        assert_eq!(health.failure().as_deref(), Some("the last sync failed"));
    }

    #[test]
    fn calls_after_close_return_closed_or_superseded() {
        let health = Health::new(false, None);
        health.poison("the device is gone", false);
        health.closing.store(true, SeqCst);
        assert!(matches!(health.check_writable(), Err(Error::Closed)), "closed comes before poisoned");
        assert!(matches!(health.enter(), Err(Error::Closed)));
        health.is_superseded.store(true, SeqCst);
        assert!(matches!(health.check_open(), Err(Error::Superseded)));
        assert!(matches!(health.enter_past_closing(), Err(Error::Superseded)));
    }
}
