//! The write-ahead log with its archive and its watchers.

use super::archiver::Archiver;
use crate::{db::engine::wal_notify::Watches, wal::Wal};

#[derive(Debug)]
pub struct LogState {
    /// `None` if the database is open read-only.
    pub wal: Option<Wal>,
    pub archiver: Option<Archiver>,
    pub watches: Watches,
    /// A random number drawn at each creation, restore or salvage. Watch tokens of another
    /// incarnation are refused.
    pub incarnation: u64,
}
