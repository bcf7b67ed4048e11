//! The header of every file.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | magic, by kind of file |
//! | 8..12 | format version |
//! | 12..16 | zero |
//! | 16..24 | required feature bits: a reader that does not know one must not open the file |
//! | 24..32 | optional feature bits: a reader may ignore unknown ones |
//! | 32..40 | file id, random |
//! | 40..56 | two numbers whose meaning depends on the kind |
//! | 56..64 | checksum of bytes 0..56, of file id 0 at offset 0 |

use super::{ByteReader, checksum};
use crate::base::{Error, FileId, Result};
use std::path::Path;

pub const FILE_HEADER_LEN: usize = 64;

/// Format version of this build. It reads earlier versions and refuses later ones.
///
/// 1. The first.
/// 2. Entries of kind 4: merge operands. A reader of version 1 would return operands as values.
/// 3. Entries of kinds 5 and 6: values with an expiry time, and streams.
pub const FORMAT_VERSION: u32 = 3;

/// Dump version of this build. Dumps describe contents, not files, so their versions count
/// separately.
///
/// 1. The first.
pub const DUMP_VERSION: u32 = 1;

/// Required feature of runs: zeros may lie between data blocks; the index has their lengths.
pub const PADDED_BLOCKS: u64 = 1;

/// Required feature of runs: the manifest has one sequence number for all entries, the file none.
pub const GIVEN_SEQUENCE: u64 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A log segment. Numbers: start LSN, epoch (see `wal/format.rs`).
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
    /// A backup's file. Numbers: the backup's number, and the length of the data after the header.
    Backup,
    /// A dump. Numbers: its last commit, and zero.
    Dump,
    /// The disk reserve. Numbers: length of the whole file, and zero.
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

    fn known_features(self) -> u64 {
        match self {
            FileKind::Run => PADDED_BLOCKS | GIVEN_SEQUENCE,
            _ => 0,
        }
    }

    /// Version that this build writes, also the latest that it reads.
    pub fn version(self) -> u32 {
        if self == FileKind::Dump { DUMP_VERSION } else { FORMAT_VERSION }
    }

    pub fn of_magic(bytes: &[u8]) -> Option<FileKind> {
        FileKind::ALL.into_iter().find(|kind| bytes.starts_with(kind.magic()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    pub kind: FileKind,
    pub version: u32,
    pub required_features: u64,
    pub optional_features: u64,
    pub file_id: FileId,
    pub numbers: [u64; 2],
}

impl FileHeader {
    pub fn new(kind: FileKind, file_id: FileId, numbers: [u64; 2]) -> FileHeader {
        FileHeader { kind, version: kind.version(), required_features: 0, optional_features: 0, file_id, numbers }
    }

    pub fn requiring(self, required_features: u64) -> FileHeader {
        FileHeader { required_features, ..self }
    }

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

    /// [`FileHeader::decode`] that repairs one damaged byte, whose value the checksum determines,
    /// and returns its position.
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

/// Applies the one-byte change that makes `is_whole` true. `None` if there is none or it is true
/// already.
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
    fn decode_of_header_accepts_earlier_and_refuses_later_versions() {
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
    fn decode_repaired_of_one_damaged_byte_restores_header() {
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
    fn decode_of_header_with_flipped_bit_fails() {
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
