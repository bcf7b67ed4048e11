//! Backups: images of a database in a target, which share the files that they have in common.
//!
//! `target` is where objects are put, `description` says what a backup consists of, `store` looks after all backups of a target,
//! `create` adds one and `restore` makes a database of one.

mod create;
mod description;
mod directory;
mod restore;
mod store;
mod target;

pub use create::BackupOptions;
pub use directory::DirectoryTarget;
pub use restore::{Restored, restore, restore_to};
pub use store::{BackupInfo, BackupReport, Backups, Retention};
pub use target::{BackupTarget, Object, ObjectReader, ObjectWriter, TargetLock};
