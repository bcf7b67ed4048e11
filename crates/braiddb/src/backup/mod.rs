//! Backups: images of a database in a target, which share common files.
//!
//! `target` stores objects, `description` lists the contents of a backup, `store` manages the
//! backups of a target, `create` adds one and `restore` makes a database from one.

mod archive_copy;
mod create;
mod description;
mod directory;
mod restore;
mod store;
mod target;

pub use crate::db::{ArchiveGap, RestorePoint};
pub use archive_copy::{ArchiveCopies, ArchiveCopy};
pub use create::BackupOptions;
pub use directory::DirectoryTarget;
pub use restore::Restored;
pub(crate) use restore::{restore, restore_to};
pub use store::{BackupInfo, BackupReport, Backups, Retention};
pub use target::{BackupTarget, Object, ObjectReader, ObjectWriter, TargetLock};
