//! The Windows file system, and threads on chosen processors.

mod file;
pub mod local_pipe;
mod overlapped;
mod pipe_user;
mod requests;
pub mod threads;
mod unbuffered;
pub mod vfs;
