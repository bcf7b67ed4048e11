//! The export format: trees as JSON lines, from which `import` recreates the same trees, byte for
//! byte. `docs/cli.md` specifies it.

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
