//! The write-ahead log with its archive and its watchers.

use super::archiver::Archiver;
use crate::{db::engine::wal_notify::Watches, wal::Wal};

/// The log of a database.
#[derive(Debug)]
pub struct LogState {
    /// `None` if the database is open read-only.
    pub wal: Option<Wal>,
    /// Copies the log to an archive, if there is one.
    pub archiver: Option<Archiver>,
    pub watches: Watches,
    /// A random number drawn at each creation, restore or salvage: watch tokens of another incarnation are refused.
    pub incarnation: u64,
}
