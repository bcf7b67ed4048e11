//! Blob files: values above a threshold, written once, at commit.

mod format;
mod pieces;
mod place;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use format::{BLOB_CHUNK_LEN, BlobRef, blob_path};
pub use pieces::{Pieces, map_references, visit_references};
pub use reader::{BlobFile, BlobValue, ScanItem};
pub use writer::{BlobWriter, BlobWriterContext, Lane};
