//! Opening: creation, recovery, log retention, and the log archive.

pub mod archive;
pub mod archive_files;
pub mod birthplace;
pub mod new_directory;
pub mod opening;
pub mod preopen;
pub mod replay;
#[cfg(test)]
pub mod tests;
pub mod wal_retention;
