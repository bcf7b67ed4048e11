//! A dump that nobody sent: deterministic, skewed like the real one, and as dirty.
//!
//! Disc `i` of a dump is a function of the seed, of `i` and of the number of discs alone, so that any disc can be made
//! again by itself, and a dump can be written by several threads.

mod disc;
mod dump;
mod words;

pub use disc::disc_file;
pub use dump::{DumpOptions, DumpReport, write_dump};
