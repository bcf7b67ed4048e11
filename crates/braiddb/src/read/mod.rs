//! Reads: get, merge, scan.
