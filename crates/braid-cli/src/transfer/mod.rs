//! The export format of `docs/cli.md`: trees as JSON lines.

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
