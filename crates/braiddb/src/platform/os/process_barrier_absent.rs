//! No barriers for all threads of a process, where the system has no call for that.

/// Whether [`barrier`] can be called.
pub(in crate::platform) fn prepare() -> bool {
    false
}

/// Never called.
pub(in crate::platform) fn barrier() -> bool {
    false
}
