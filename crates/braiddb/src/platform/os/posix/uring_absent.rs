//! For processors without io_uring support.

use crate::platform::batch::ReadRequest;

#[derive(Debug)]
pub(super) struct NotNow;

pub(super) fn refused() -> Option<String> {
    Some("not built for this processor".to_owned())
}

pub(super) fn read(_requests: &mut [ReadRequest]) -> Result<(), NotNow> {
    Err(NotNow)
}
