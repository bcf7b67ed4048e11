//! The header that every file begins with.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic, by kind of file |
//! | 8..12 | format version |
//! | 12..16 | zero |
//! | 16..24 | required feature bits: a reader that does not know one must not open the file |
//! | 24..32 | optional feature bits: a reader may ignore those it does not know |
//! | 32..40 | file id, random |
//! | 40..56 | two numbers whose meaning depends on the kind |
//! | 56..64 | checksum of bytes 0..56, of file id 0 at offset 0 |

use super::{ByteReader, checksum};
use crate::base::{Error, FileId, Result};
use std::path::Path;

/// The length of a file header in bytes.
pub const FILE_HEADER_LEN: usize = 64;

/// The version this build writes. A file of a later version is refused; all earlier ones are read.
///
/// 1. The first.
/// 2. Entries of kind 4, operands of merge functions. A build that knows version 1 alone would show operands as values.
/// 3. Entries of kinds 5 and 6, values with an end and streams.
pub const FORMAT_VERSION: u32 = 3;

/// The version of dumps that this build writes. They say what a database holds, not how, and so have versions of their own.
///
/// 1. The first.
pub const DUMP_VERSION: u32 = 1;

/// A required feature of runs: there may be zeros between data blocks, and the index tells how many.
pub const PADDED_BLOCKS: u64 = 1;

/// A required feature of runs: the file tells no sequence numbers; the manifest has the one that all its entries have.
pub const GIVEN_SEQUENCE: u64 = 2;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A log segment. Numbers: start LSN, epoch.
    Wal,
    /// A sorted run. Numbers: zero.
    Run,
    /// A sorted view. Numbers: zero.
    View,
    /// A blob file. Numbers: zero.
    Blob,
    /// A manifest. Numbers: zero.
    Manifest,
    /// A slot of CURRENT. Numbers: manifest number, generation.
    Current,
    /// What a backup consists of. Numbers: the backup's, and the length of what follows the header.
    Backup,
    /// A dump. Numbers: the last commit in it, and zero.
    Dump,
    /// The reserve of disk space. Numbers: the length of the whole file, and zero.
    Reserve,
}

impl FileKind {
    const ALL: [FileKind; 9] = [
        FileKind::Wal,
        FileKind::Run,
        FileKind::View,
        FileKind::Blob,
        FileKind::Manifest,
        FileKind::Current,
        FileKind::Backup,
        FileKind::Dump,
        FileKind::Reserve,
    ];

    /// The first eight bytes of such a file.
    pub fn magic(self) -> &'static [u8; 8] {
        match self {
            FileKind::Wal => b"BRAIDWAL",
            FileKind::Run => b"BRAIDRUN",
            FileKind::View => b"BRAIDVEW",
            FileKind::Blob => b"BRAIDBLB",
            FileKind::Manifest => b"BRAIDMAN",
            FileKind::Current => b"BRAIDCUR",
            FileKind::Backup => b"BRAIDBAK",
            FileKind::Dump => b"BRAIDDMP",
            FileKind::Reserve => b"BRAIDRSV",
        }
    }

    /// The required feature bits of such files that this build knows.
    fn known_features(self) -> u64 {
        match self {
            FileKind::Run => PADDED_BLOCKS | GIVEN_SEQUENCE,
            _ => 0,
        }
    }

    /// The latest version of such files that this build knows, which is the one that it writes.
    pub fn version(self) -> u32 {
        if self == FileKind::Dump { DUMP_VERSION } else { FORMAT_VERSION }
    }

    /// The kind that these first bytes tell of, if any.
    pub fn of_magic(bytes: &[u8]) -> Option<FileKind> {
        FileKind::ALL.into_iter().find(|kind| bytes.starts_with(kind.magic()))
    }
}

/// The header's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// What the file is.
    pub kind: FileKind,
    /// The format version that wrote it.
    pub version: u32,
    /// Features without which the file cannot be read.
    pub required_features: u64,
    /// Features that may be ignored.
    pub optional_features: u64,
    /// The file's random identity.
    pub file_id: FileId,
    /// Two numbers whose meaning depends on the kind.
    pub numbers: [u64; 2],
}

impl FileHeader {
    /// A header of the present version.
    pub fn new(kind: FileKind, file_id: FileId, numbers: [u64; 2]) -> FileHeader {
        FileHeader { kind, version: kind.version(), required_features: 0, optional_features: 0, file_id, numbers }
    }

    /// The header, with these required features.
    pub fn requiring(self, required_features: u64) -> FileHeader {
        FileHeader { required_features, ..self }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; FILE_HEADER_LEN] {
        let mut out = [0; FILE_HEADER_LEN];
        out[0..8].copy_from_slice(self.kind.magic());
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        out[16..24].copy_from_slice(&self.required_features.to_le_bytes());
        out[24..32].copy_from_slice(&self.optional_features.to_le_bytes());
        out[32..40].copy_from_slice(&self.file_id.to_le_bytes());
        out[40..48].copy_from_slice(&self.numbers[0].to_le_bytes());
        out[48..56].copy_from_slice(&self.numbers[1].to_le_bytes());
        let sum = checksum(0, 0, &out[..56]);
        out[56..64].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Reads the header of a file of the given kind. `path` and `offset` are for the error's sake.
    pub fn decode(kind: FileKind, bytes: &[u8], path: &Path, offset: u64) -> Result<FileHeader> {
        let bad = |detail: &str| Error::corruption(path, offset, detail);
        let bytes = bytes.get(..FILE_HEADER_LEN).ok_or_else(|| bad("the file header is cut short"))?;
        if !bytes.starts_with(kind.magic()) {
            return Err(bad(&format!("the magic is not that of a {kind:?} file")));
        }
        let mut reader = ByteReader::new(&bytes[8..]);
        let mut next = || reader.u64().unwrap_or_default();
        let version = next();
        let (required_features, optional_features, file_id) = (next(), next(), next());
        let numbers = [next(), next()];
        if checksum(0, 0, &bytes[..56]) != next() {
            return Err(bad("the file header's checksum does not match"));
        }
        let version = u32::try_from(version).map_err(|_| bad("reserved bytes of the file header are not zero"))?;
        let unsupported =
            |detail: String| Error::Unsupported { path: path.to_owned(), detail: detail + "; use a newer build" };
        let version_max = kind.version();
        if version == 0 || version > version_max {
            return Err(unsupported(format!("its format version is {version}, this build knows 1 to {version_max}")));
        }
        let unknown = required_features & !kind.known_features();
        if unknown != 0 {
            return Err(unsupported(format!("it needs unknown features {unknown:#x}")));
        }
        Ok(FileHeader { kind, version, required_features, optional_features, file_id, numbers })
    }

    /// As [`FileHeader::decode`], and a header in which one byte is damaged is read as it was: of all bytes that could have stood
    /// there, one alone fits the checksum. Returns that byte's place, too.
    pub fn decode_repaired(
        kind: FileKind,
        bytes: &[u8],
        path: &Path,
        offset: u64,
    ) -> Result<(FileHeader, Option<usize>)> {
        let error = match FileHeader::decode(kind, bytes, path, offset) {
            Ok(header) => return Ok((header, None)),
            Err(error) => error,
        };
        let Some(mut header) = bytes.first_chunk::<FILE_HEADER_LEN>().copied() else { return Err(error) };
        let is_whole = |bytes: &[u8; FILE_HEADER_LEN]| checksum(0, 0, &bytes[..56]).to_le_bytes() == bytes[56..];
        let place = repair_byte(&mut header, is_whole).ok_or(error)?;
        Ok((FileHeader::decode(kind, &header, path, offset)?, Some(place)))
    }
}

/// Finds the one byte that makes `bytes` whole when it is changed, and changes it; returns its place. `None` if no single byte does, or
/// they are whole already.
pub fn repair_byte<const LEN: usize>(bytes: &mut [u8; LEN], is_whole: impl Fn(&[u8; LEN]) -> bool) -> Option<usize> {
    if is_whole(bytes) {
        return None;
    }
    for place in 0..LEN {
        let was = bytes[place];
        for change in 1..=u8::MAX {
            bytes[place] = was ^ change;
            if is_whole(bytes) {
                return Some(place);
            }
        }
        bytes[place] = was;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_versions_are_read_and_later_ones_refused() {
        let path = Path::new("000001.run");
        for version in 0..FORMAT_VERSION + 2 {
            let header = FileHeader { version, ..FileHeader::new(FileKind::Run, 77, [1, 2]) };
            match FileHeader::decode(FileKind::Run, &header.encode(), path, 0) {
                Ok(decoded) => assert!(decoded == header && (1..=FORMAT_VERSION).contains(&version)),
                Err(e) => assert!(matches!(e, Error::Unsupported { .. }) && !(1..=FORMAT_VERSION).contains(&version)),
            }
        }
    }

    #[test]
    fn header_with_one_damaged_byte_is_read_as_it_was() {
        let header = FileHeader::new(FileKind::Run, 77, [1, 2]);
        let bytes = header.encode();
        let path = Path::new("000001.run");
        let repaired = |bytes: &[u8]| FileHeader::decode_repaired(FileKind::Run, bytes, path, 0);
        assert_eq!(repaired(&bytes).unwrap(), (header, None));
        for place in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes;
            damaged[place] ^= 0x41;
            assert_eq!(repaired(&damaged).unwrap(), (header, Some(place)));
            damaged[(place + 1) % 64] ^= 1;
            assert!(repaired(&damaged).unwrap_err().is_corruption());
        }
        assert!(repaired(&[0; 64]).unwrap_err().is_corruption());
        assert!(repaired(&bytes[..63]).unwrap_err().is_corruption());
    }

    #[test]
    fn each_flipped_bit_is_refused() {
        let header = FileHeader::new(FileKind::Run, 77, [1, 2]);
        let bytes = header.encode();
        let path = Path::new("000001.run");
        assert_eq!(FileHeader::decode(FileKind::Run, &bytes, path, 0).unwrap(), header);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::decode(FileKind::Run, &flipped, path, 0).unwrap_err().is_corruption());
        }
        for len in 0..bytes.len() {
            assert!(FileHeader::decode(FileKind::Run, &bytes[..len], path, 0).is_err());
        }
    }
}
