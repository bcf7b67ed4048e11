//! `braid demo`: a dump is made, goes in, is looked up, is killed, and comes back whole.

mod importer;
mod lookups;
mod picture;
mod screen;
mod show;
mod verification;

pub use picture::{Drawn, draw_partitions};
pub use show::run;
