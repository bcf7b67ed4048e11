//! Standard output, standard error, and output files. clippy forbids `println!` and similar macros,
//! which panic if the output is closed or full.

mod file;
mod standard;

pub use file::OutputFile;
#[cfg(any(feature = "shell", feature = "top"))]
pub use standard::is_terminal;
pub(crate) use standard::note;
pub use standard::{Stdout, is_reader_gone, note_line, print_line, report_error, set_json};
