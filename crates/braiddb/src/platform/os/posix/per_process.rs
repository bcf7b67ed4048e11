//! State of a process that its forked children do not share.
//!
//! A child of a fork has a copy of its parent's memory, but none of its other threads, and shares
//! the kernel's side of its descriptors. So queues and counts of threads must begin afresh.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A static of a process. A child gets its own; what it inherited is never used nor freed, as a
/// thread of the parent may have held its lock.
pub(super) struct PerProcess<T: 'static> {
    of: AtomicPtr<Of<T>>,
}

struct Of<T> {
    process: u32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub const fn new() -> PerProcess<T> {
        PerProcess { of: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the value of this process. Takes one quick system call.
    pub fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let process = std::process::id();
        let found = self.of.load(Ordering::Acquire);
        // SAFETY: null, or set below from a box that is never freed.
        if let Some(of) = unsafe { found.as_ref() }
            && of.process == process
        {
            return &of.value;
        }
        let made = Box::into_raw(Box::new(Of { process, value: make() }));
        match self.of.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just made, and never freed from now on.
            Ok(_) => unsafe { &(*made).value },
            Err(other) => {
                // SAFETY: no one has seen it. The other one was set by a thread of this process, and
                // is never freed.
                unsafe {
                    drop(Box::from_raw(made));
                    &(*other).value
                }
            }
        }
    }
}

// Elsewhere there are no bindings for `fork`.
#[cfg(all(test, any(target_os = "linux", target_vendor = "apple")))]
pub(super) mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};

    /// Returns whether `work` returns true in a forked child. It must not panic nor allocate much:
    /// other threads of the parent may have held locks.
    pub(in crate::platform::os::posix) fn is_true_in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child runs `work`, without the locks of other threads, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // SAFETY: ends the process without its destructors.
            unsafe { libc::_exit(i32::from(!done.unwrap_or(false))) }
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        let (_, status) = waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap().unwrap();
        status.exit_status() == Some(0)
    }

    #[test]
    #[cfg_attr(miri, ignore = "no fork")]
    fn child_of_fork_gets_a_value_of_its_own() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        let of_parent = VALUES.get(|| 1);
        assert_eq!((*of_parent, *VALUES.get(|| 2)), (1, 1));
        assert!(is_true_in_child(|| *VALUES.get(|| 3) == 3 && *VALUES.get(|| 4) == 3));
        assert!(std::ptr::eq(of_parent, VALUES.get(|| 5)));
    }

    #[test]
    fn threads_get_the_same_value() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || *VALUES.get(|| n))).collect();
            let got: Vec<u32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(got.iter().all(|value| *value == got[0]), "{got:?}");
        });
    }
}
