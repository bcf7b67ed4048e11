//! Barriers that Windows makes for all threads of a process.

use windows_sys::Win32::System::Threading::FlushProcessWriteBuffers;

/// Whether [`barrier`] can be called.
pub(super) fn prepare() -> bool {
    true
}

/// Has each running thread of this process pass a barrier.
pub(super) fn barrier() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { FlushProcessWriteBuffers() };
    true
}
