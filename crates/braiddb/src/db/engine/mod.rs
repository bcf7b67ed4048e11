//! State that all handles share: settings, catalog, clock, memory, threads, statistics.

pub mod catalog;
pub mod clock;
pub mod edits;
pub mod events;
pub mod key;
pub mod memory;
pub mod parts;
pub mod read_hold;
pub mod root;
pub mod settings;
pub mod settings_check;
pub mod shared_runtime;
pub mod slow_commits;
pub mod stats;
#[cfg(test)]
pub mod tests;
pub mod thread_pool;
pub mod tree_codec;
pub mod tree_options;
pub mod wal_notify;
