//! Tests of the commit path, one behaviour for each file.

pub mod commits;
pub mod memtables;
pub mod slow_commits;
pub mod stages;
pub mod update_scope;
pub mod wal_bypass;
