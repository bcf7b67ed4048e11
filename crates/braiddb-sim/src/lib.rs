//! The simulated world of BraidDB.
