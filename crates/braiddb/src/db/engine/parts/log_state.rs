//! The write-ahead log with its archive, its watchers, and the commits that wait for its sync.

use super::{archiver::Archiver, sync_waits::SyncWaits};
use crate::{db::engine::wal_notify::Watches, wal::Wal};

#[derive(Debug)]
pub struct LogState {
    /// `None` if the database is open read-only.
    pub wal: Option<Wal>,
    pub archiver: Option<Archiver>,
    pub watches: Watches,
    pub sync_waits: SyncWaits,
    /// A random number drawn at each creation, restore or salvage. Watch tokens of another
    /// incarnation are refused.
    pub incarnation: u64,
}
