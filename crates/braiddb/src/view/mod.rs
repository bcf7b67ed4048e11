//! The sorted view over many runs.
