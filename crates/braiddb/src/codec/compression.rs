//! Compression of blocks and log records.

use crate::base::{Error, Result};

/// Compression method. The numbers are part of the file formats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Compression {
    /// No compression.
    None = 0,
    /// LZ4, block format.
    #[default]
    Lz4 = 1,
    /// Zstandard, level 3. Needs the feature `zstd` (on by default). Builds without it refuse the
    /// option, and write LZ4 to existing trees that use Zstandard.
    Zstd = 2,
}

impl Compression {
    pub(crate) fn check(self) -> Result<()> {
        if !self.is_readable() {
            let reason = "this build of the library has no Zstandard: choose LZ4, or build it with the feature `zstd`";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
        Ok(())
    }

    pub(crate) fn or_available(self) -> Compression {
        if self.is_readable() { self } else { Compression::Lz4 }
    }

    pub(crate) fn is_readable(self) -> bool {
        self != Compression::Zstd || cfg!(feature = "zstd")
    }

    /// Returns the method of a format byte, or `None` if no method has it.
    pub fn from_byte(byte: u8) -> Option<Compression> {
        Some(match byte {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            _ => return None,
        })
    }
}

/// `None` if compression saves less than an eighth.
pub fn compress(method: Compression, bytes: &[u8]) -> Option<Vec<u8>> {
    let packed = match method {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::compress(bytes),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::bulk::compress(bytes, 3).ok()?,
        #[cfg(not(feature = "zstd"))]
        Compression::Zstd => return None,
    };
    (packed.len() <= bytes.len() - bytes.len() / 8).then_some(packed)
}

/// `None` if `packed` is invalid. The caller must bound `len`.
pub fn decompress(method: Compression, packed: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decompress_into(method, packed, len, &mut bytes).then_some(bytes)
}

/// [`decompress`] that replaces the contents of `out`; false for invalid input.
pub fn decompress_into(method: Compression, packed: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    out.resize(len, 0);
    let unpacked = match method {
        Compression::None => {
            out.clear();
            out.extend_from_slice(packed);
            Some(packed.len())
        }
        Compression::Lz4 => lz4_flex::block::decompress_into(packed, out).ok(),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::bulk::decompress_to_buffer(packed, out.as_mut_slice()).ok(),
        #[cfg(not(feature = "zstd"))]
        Compression::Zstd => None,
    };
    unpacked == Some(len)
}
