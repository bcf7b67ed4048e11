//! The export format: trees as JSON lines, from which `import` makes the same trees again, byte for byte.
//!
//! `line` has the lines, `writer` makes them of a database and `reader` a database of them. `docs/cli.md` specifies the format.

mod gaps;
mod line;
mod reader;
#[cfg(test)]
mod tests;
mod walk;
mod writer;

pub use line::MAGIC;
pub use reader::{ExportReader, ReadReport, StoreOptions};
pub use walk::{Walk, Walked, is_of_one_record};
pub use writer::{WriteReport, write_export};
