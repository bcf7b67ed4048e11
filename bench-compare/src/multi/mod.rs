//! Many values a key: BraidDB's multi-trees beside LMDB's dupsort, with one, a hundred and all
//! values a key.

#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod run;
#[cfg(not(all(feature = "braiddb", feature = "lmdb")))]
#[path = "run_absent.rs"]
mod run;

pub use run::run;
