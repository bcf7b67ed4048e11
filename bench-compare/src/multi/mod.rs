//! Many values per key: BraidDB's multi-trees beside LMDB's dupsort.

#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod run;
#[cfg(not(all(feature = "braiddb", feature = "lmdb")))]
#[path = "run_absent.rs"]
mod run;

pub use run::run;
