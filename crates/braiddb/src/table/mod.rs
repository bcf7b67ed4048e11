//! Sorted run files and blob files.
