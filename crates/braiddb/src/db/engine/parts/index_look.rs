//! What is known of partitions that idle time may give hash indexes.

/// What is known of a partition that was looked at while the database rested.
#[derive(Debug, Default)]
pub struct Look {
    /// How many entries its view had for which an index was made.
    pub(in crate::db) entries: u64,
    /// It is not looked at again before, after a pause that grows.
    pub(in crate::db) again_ns: u64,
    pub(in crate::db) pause_ns: u64,
}
