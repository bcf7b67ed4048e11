//! Input files: opens, detects, decompresses and splits them into records.

mod archive;
mod chunk;
mod folder;
mod packed;
mod rows;
mod source;
#[cfg(test)]
mod tests;
mod text;

pub use archive::{Place, read_archive};
pub use chunk::{Chunk, ChunkSink, Stopped};
pub use rows::{Fields, MARK, Position, Row, RowReader, RowStyle, split_fields};
pub use source::{Identity, Source, unreadable};
