//! Output: standard output, standard error, and files that are named on the command line.
//!
//! All output of the command goes through here; clippy forbids `println!` and its kin, which panic where their output is
//! closed or full.

mod file;
mod standard;

pub use file::OutputFile;
pub(crate) use standard::note;
pub use standard::{Stdout, is_reader_gone, note_line, print_line};
