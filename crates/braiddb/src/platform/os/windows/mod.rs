//! The Windows file system, and threads on chosen processors.

mod file;
mod requests;
pub mod threads;
mod unbuffered;
pub mod vfs;
