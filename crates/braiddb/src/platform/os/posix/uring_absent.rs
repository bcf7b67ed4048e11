//! Linux where nothing here speaks io_uring: threads read instead.

use crate::platform::batch::ReadRequest;

/// It is not to be had.
#[derive(Debug)]
pub(super) struct NotNow;

/// Why it is not to be used.
pub(super) fn refused() -> Option<String> {
    Some("not built for this processor".to_owned())
}

/// Makes none of them.
pub(super) fn read(_requests: &mut [ReadRequest]) -> Result<(), NotNow> {
    Err(NotNow)
}
