pub(in crate::platform) fn prepare() -> bool {
    false
}

/// Never called.
pub(in crate::platform) fn barrier() -> bool {
    false
}
