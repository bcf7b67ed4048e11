//! Stub for Linux on processors without io_uring support: threads read instead.

use crate::platform::batch::ReadRequest;

/// io_uring is unavailable.
#[derive(Debug)]
pub(super) struct NotNow;

/// Returns the reason for not using it.
pub(super) fn refused() -> Option<String> {
    Some("not built for this processor".to_owned())
}

/// Executes none of them.
pub(super) fn read(_requests: &mut [ReadRequest]) -> Result<(), NotNow> {
    Err(NotNow)
}
