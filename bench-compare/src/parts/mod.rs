//! Kinds of reads one by one, against LMDB at its best. All data is warm, and one thread reads.
//! LMDB is loaded in key order and read through its C interface with one transaction and cursor;
//! BraidDB has eight runs in one view.

mod part;
#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod run;
#[cfg(not(all(feature = "braiddb", feature = "lmdb")))]
#[path = "run_absent.rs"]
mod run;
#[cfg(test)]
mod tests;

pub use part::{PartFigure, PartsRow};
pub use run::run;
