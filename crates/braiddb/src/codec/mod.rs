//! How numbers and bytes are laid out in files.

mod checksum;
mod compression;
mod header;
mod reader;
mod varint;

pub use checksum::{checksum, hash64};
pub use compression::{Compression, compress, decompress, decompress_into};
pub use header::{FILE_HEADER_LEN, FileHeader, FileKind, PADDED_BLOCKS};
pub use reader::ByteReader;
pub use varint::{put_bytes, put_varint, read_varint, unzigzag, varint_len, write_varint, zigzag};
