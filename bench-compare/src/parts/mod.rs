//! Single kinds of reads against LMDB at its best.

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
