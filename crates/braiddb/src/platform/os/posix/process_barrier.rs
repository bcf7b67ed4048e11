//! A memory barrier on all running threads of the process (Linux `membarrier(2)`, since 4.14).

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED`.
const BARRIER: libc::c_int = 1 << 3;
/// `MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED`, required before the other.
const REGISTER: libc::c_int = 1 << 4;

pub(in crate::platform) fn prepare() -> bool {
    call(REGISTER)
}

pub(in crate::platform) fn barrier() -> bool {
    call(BARRIER)
}

fn call(command: libc::c_int) -> bool {
    // SAFETY: the call takes only numbers and touches no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
