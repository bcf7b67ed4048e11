//! An asymmetric memory barrier: free on the frequent (light) side, a system call on the rare
//! (heavy) side.
//!
//! Two threads that each store and then load the other's store need a barrier in between, or both
//! may miss the other's store. On Linux, `membarrier` lets the heavy side execute barriers on all
//! processors that run threads of this process. Elsewhere both sides execute a barrier, on Windows
//! too: some versions of Wine lack `FlushProcessWriteBuffers`.

use crate::platform::os::process_barrier as system;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering, compiler_fence, fence},
};

/// Refused after the system had granted some.
static WAS_REFUSED: AtomicBool = AtomicBool::new(false);

/// Takes the result of [`is_one_sided`].
#[inline(always)]
pub(super) fn light(is_one_sided: bool) {
    if is_one_sided {
        // Only keeps the compiler from reordering.
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// False if it failed; then later loads prove nothing.
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

/// True if the system executes barriers for all threads. Tested once.
pub(super) fn is_one_sided() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| system::prepare() && system::barrier())
}
