//! The database: open, recovery, state, background work.
