//! Tests of the room, each file of one behaviour.

pub mod memtables;
pub mod update_scope;
pub mod wal_bypass;
