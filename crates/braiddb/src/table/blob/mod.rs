//! Blob files: values above a threshold, written once, at commit.
//!
//! `format` has the bytes, `writer` appends records from many threads, `reader` reads one value or walks over all, `place` is
//! for reading where the file is mapped, `pieces` has the lists of references that entries hold.

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
