//! `braid demo`.

mod importer;
mod lookups;
mod picture;
mod screen;
mod show;
mod verification;

pub use picture::{Drawn, draw_partitions};
pub use show::run;
