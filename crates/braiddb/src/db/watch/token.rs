//! The position of a watcher, to be stored: its bytes. `source.rs` checks it.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | flags: 1 all returned commits were synced before |
//! | 2..10 | the database's incarnation |
//! | 10..18 | the last returned sequence number |
//! | 18..26 | the epoch of the log |
//! | 26..34 | the LSN in the log |
//! | 34..42 | checksum(incarnation, 0, bytes 0..34) |

use crate::{
    base::{Error, Result, SequenceNumber},
    codec::{ByteReader, checksum},
};
use std::{fmt, str::FromStr};

const TOKEN_LEN: usize = 42;

const CHECKSUM_AT: usize = TOKEN_LEN - 8;

/// Flag: the watcher returned only synced commits.
const SYNCED: u8 = 1;

/// The position of a watcher, after the changes that it returned. Store it as bytes or text, and
/// pass it to [`super::WatchOptions::resume`], even after a crash and reopening. A process that
/// stores the token atomically with the effects of the changes processes each change exactly once.
///
/// Valid for one incarnation of one database: refused after a restore from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResumeToken {
    pub(super) incarnation: u64,
    pub(super) sequence: SequenceNumber,
    pub(super) epoch: u64,
    pub(super) lsn: u64,
    pub(super) is_synced: bool,
}

impl ResumeToken {
    /// Returns the last commit seen.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }

    /// Returns the encoded token.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(TOKEN_LEN);
        out.extend_from_slice(&[1, if self.is_synced { SYNCED } else { 0 }]);
        for number in [self.incarnation, self.sequence, self.epoch, self.lsn] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let sum = checksum(self.incarnation, 0, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes a token; `InvalidArgument` for any other or changed bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<ResumeToken> {
        ResumeToken::decode(bytes).ok_or_else(|| {
            Error::InvalidArgument(
                "these bytes are no resume token of a watcher: give one as it was returned, or watch without"
                    .to_owned(),
            )
        })
    }

    fn decode(bytes: &[u8]) -> Option<ResumeToken> {
        let bytes: &[u8; TOKEN_LEN] = bytes.try_into().ok()?;
        let mut reader = ByteReader::new(bytes);
        let (version, flags) = (reader.u8()?, reader.u8()?);
        let (incarnation, sequence, epoch, lsn) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let is_whole = reader.u64()? == checksum(incarnation, 0, &bytes[..CHECKSUM_AT]);
        let is_known = version == 1 && flags & !SYNCED == 0;
        (is_whole && is_known).then_some(ResumeToken {
            incarnation,
            sequence,
            epoch,
            lsn,
            is_synced: flags & SYNCED != 0,
        })
    }
}

impl fmt::Display for ResumeToken {
    /// Writes the bytes in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ResumeToken {
    type Err = Error;

    /// Parses the text of a token; `InvalidArgument` for any other text.
    fn from_str(text: &str) -> Result<ResumeToken> {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        let (pairs, rest) = text.as_bytes().as_chunks();
        let bytes: Option<Vec<u8>> = pairs.iter().map(pair).collect();
        ResumeToken::from_bytes(&bytes.filter(|_| rest.is_empty()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_round_trips_through_bytes_and_text_and_refuses_changes() {
        let token = ResumeToken { incarnation: 7 << 40, sequence: 91, epoch: 3, lsn: 1 << 33, is_synced: true };
        let (bytes, text) = (token.to_bytes(), token.to_string());
        assert_eq!(ResumeToken::from_bytes(&bytes).unwrap(), token);
        assert_eq!(text.parse::<ResumeToken>().unwrap(), token);
        assert_eq!(text.to_uppercase().parse::<ResumeToken>().unwrap(), token);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(ResumeToken::from_bytes(&changed).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(ResumeToken::from_bytes(&bytes[..len]).is_err());
            assert!(text[..2 * len + 1].parse::<ResumeToken>().is_err());
        }
        assert!("".parse::<ResumeToken>().is_err() && "zz".parse::<ResumeToken>().is_err());
    }
}
