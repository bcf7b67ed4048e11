//! BraidDB: an embedded, ordered, transactional key-value store.

pub mod base;
mod cache;
mod codec;
mod commit;
mod compaction;
mod db;
mod memtable;
pub mod platform;
mod read;
mod table;
mod version;
mod view;
mod wal;
