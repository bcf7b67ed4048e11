//! Backups, checkpoints and log archives of BraidDB in object stores such as S3.
//!
//! [`ObjectStoreTarget`] is a [`BackupTarget`](braiddb::backup::BackupTarget) over any
//! [`object_store::ObjectStore`] with conditional writes. Its lock is a lease that passes to
//! another process when it expires, and a writer whose lease was taken cannot publish a backup or
//! delete an object of the next writer (`lease.rs`, `publish.rs`).

mod checkpoints;
mod failure;
#[cfg(test)]
mod faulty;
mod lease;
mod options;
mod ownership;
mod publish;
mod reader;
mod remote;
#[cfg(feature = "s3")]
mod s3;
mod target;
#[cfg(test)]
mod tests;
mod threads;
mod writer;

pub use checkpoints::{CheckpointInfo, Checkpoints};
pub use options::TargetOptions;
#[cfg(feature = "s3")]
pub use s3::S3;
pub use target::ObjectStoreTarget;
