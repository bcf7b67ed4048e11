//! Barriers that Linux makes for all threads of a process (`membarrier(2)`, since 4.14).

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
const BARRIER: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, without which the other is refused.
const REGISTER: libc::c_int = 1 << 4;

/// Whether [`barrier`] can be called from now on.
pub(in crate::platform) fn prepare() -> bool {
    call(REGISTER)
}

/// Has each running thread of this process pass a barrier. Whether it did.
pub(in crate::platform) fn barrier() -> bool {
    call(BARRIER)
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers alone, and touches no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
