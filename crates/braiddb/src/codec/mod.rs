//! Encoding of numbers, checksums, headers and merge operands in files.

mod checksum;
mod compression;
mod header;
mod merge_built_in;
mod merge_function;
mod operands;
mod reader;
mod varint;

pub use checksum::{Checksummer, checksum, hash64, hash64_of_words, length_with_checksum};
pub use compression::{Compression, compress, decompress, decompress_into};
pub use header::{FILE_HEADER_LEN, FORMAT_VERSION, FileHeader, FileKind, GIVEN_SEQUENCE, PADDED_BLOCKS, repair_byte};
pub use merge_built_in::{decode_set, encode_set};
pub use merge_function::{MergeFunction, MergeFunctions};
pub use operands::{Base, Operand, Operands, encode_operands};
pub use reader::ByteReader;
pub use varint::{put_bytes, put_varint, read_varint, unzigzag, varint_len, write_varint, zigzag};
