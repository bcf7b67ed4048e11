//! Plans, flushes and merges.
