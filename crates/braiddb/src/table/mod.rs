//! Sorted run files and blob files.

pub mod blob;
