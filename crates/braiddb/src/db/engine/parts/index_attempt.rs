//! State of partitions that may get hash indexes while the database is idle.

/// State of a partition after such a check.
#[derive(Debug, Default)]
pub struct IndexAttempt {
    /// Entries of the view that the last index was built for.
    pub(in crate::db) entries: u64,
    /// No check before this time. The pause grows.
    pub(in crate::db) again_ns: u64,
    pub(in crate::db) pause_ns: u64,
}
