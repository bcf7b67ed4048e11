//! A barrier that costs those who pass it often nothing, and those who pass it seldom a system call.
//!
//! Two threads that each write one thing and then read the other's need a barrier between, both of them, or both may see what was before. Where one
//! of them does it millions of times a second, and the other a few times, the system can make the barrier for both: it has each processor that
//! runs a thread of this process pass one (`membarrier` on Linux). Where there is no such call, both pass one; so on Windows, which has one (`FlushProcessWriteBuffers`), but
//! not in every version of Wine, and nobody has tried it on a real Windows.

use crate::platform::os::process_barrier as system;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering, compiler_fence, fence},
};

/// Whether the system has refused a barrier that was counted on.
static WAS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The side that is passed often, by who has asked [`is_one_sided`].
#[inline(always)]
pub(super) fn light(is_one_sided: bool) {
    if is_one_sided {
        // No more than: not to be moved by the compiler.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The side that is passed seldom. Returns whether it can be relied on: if not, nothing follows from what is read after it.
#[must_use]
pub(super) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    let is_made = !is_one_sided() || system::barrier();
    if !is_made && !WAS_REFUSED.swap(true, Ordering::Relaxed) {
        tracing::error!(
            "the system refuses barriers that it made before, as it may after a change of what calls are allowed: what \
             readers may still use, files that were removed among it, is kept until the process ends"
        );
    }
    is_made
}

/// Whether the system makes barriers for all threads, which is found out once.
pub(super) fn is_one_sided() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| system::prepare() && system::barrier())
}
