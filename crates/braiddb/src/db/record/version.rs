use crate::base::{Error, Result, SequenceNumber};
use std::{fmt, ops::Deref, str, str::FromStr};

/// Identifies a write of a record: its commit, and the database's incarnation. Two commits never
/// have the same version, even after a restore from a backup, or a power failure that lost the
/// first. So a conditional write with the version of a lost commit is refused.
///
/// A version stays valid as long as its commit exists, across closes and kills. After 1,000 opens
/// that follow a kill or a power failure, and about every 500 more, the oldest commits get new
/// versions.
///
/// Versions are ordered by commit. The text is a strong HTTP `ETag` of 35 bytes, quotes included.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// use braiddb::Version;
///
/// let db = braiddb::Db::in_memory()?;
/// let pages = db.tree("pages")?;
/// pages.put(b"index", b"hello")?;
/// let Some((_, version)) = pages.get_versioned(b"index")? else { unreachable!() };
/// let etag = version.etag(); // for the response's header
/// let asked: Version = etag.parse()?; // from `If-Match`
/// assert!(pages.put_if_version(b"index", b"changed", asked)?.is_some());
/// assert!(pages.put_if_version(b"index", b"too late", asked)?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    sequence: SequenceNumber,
    /// The incarnation XOR the tag of the number: see [`super::version_tags`].
    incarnation: u64,
}

const ETAG_LEN: usize = 35;

const INCARNATION_AT: usize = 1;
const SEQUENCE_AT: usize = 18;

const DIGITS: usize = 16;

const DIGIT_PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [b"0123456789abcdef"[byte >> 4], b"0123456789abcdef"[byte & 15]];
        byte += 1;
    }
    pairs
};

const NO_DIGIT: u8 = 0xff;

/// Upper case is invalid, so that a version has one text.
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit as usize] as usize] = digit;
        digit += 1;
    }
    values
};

/// The text of a version: `"`, 16 digits, `-`, 16 digits, `"`, in lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ETag([u8; ETAG_LEN]);

impl Version {
    pub(in crate::db) fn new(incarnation: u64, sequence: SequenceNumber) -> Version {
        Version { incarnation, sequence }
    }

    /// Returns the sequence number of the commit that wrote the record.
    pub fn sequence(self) -> SequenceNumber {
        self.sequence
    }

    /// Returns the text. Takes about 10 ns and no allocation.
    pub fn etag(self) -> ETag {
        let mut text = [b'"'; ETAG_LEN];
        write_digits(&mut text, INCARNATION_AT, self.incarnation);
        text[SEQUENCE_AT - 1] = b'-';
        write_digits(&mut text, SEQUENCE_AT, self.sequence);
        ETag(text)
    }

    /// Parses the text of a version; `None` for any other text, including a weak `ETag`
    /// (`W/"..."`).
    pub fn from_etag(text: &[u8]) -> Option<Version> {
        let text: &[u8; ETAG_LEN] = text.try_into().ok()?;
        if [text[0], text[SEQUENCE_AT - 1], text[ETAG_LEN - 1]] != *b"\"-\"" {
            return None;
        }
        let incarnation = read_digits(text, INCARNATION_AT)?;
        Some(Version { incarnation, sequence: read_digits(text, SEQUENCE_AT)? })
    }
}

#[inline]
fn write_digits(text: &mut [u8; ETAG_LEN], at: usize, number: u64) {
    for (pair, byte) in text[at..at + DIGITS].chunks_exact_mut(2).zip(number.to_be_bytes()) {
        pair.copy_from_slice(&DIGIT_PAIRS[usize::from(byte)]);
    }
}

#[inline]
fn read_digits(text: &[u8; ETAG_LEN], at: usize) -> Option<u64> {
    let (mut number, mut all) = (0, 0);
    for &character in &text[at..at + DIGITS] {
        let digit = DIGIT_VALUES[usize::from(character)];
        all |= digit;
        number = number << 4 | u64::from(digit & 15);
    }
    (all < 16).then_some(number)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.etag())
    }
}

impl FromStr for Version {
    type Err = Error;

    /// Like [`Version::from_etag`], but returns `InvalidArgument`.
    fn from_str(text: &str) -> Result<Version> {
        Version::from_etag(text.as_bytes()).ok_or_else(|| {
            Error::InvalidArgument(format!(
                "{text:?} is not the text of a version: \"16 digits-16 digits\", quotes included"
            ))
        })
    }
}

impl Deref for ETag {
    type Target = str;

    fn deref(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_has_exactly_one_text() {
        let mut number = 1_u64;
        for _ in 0..2000 {
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7);
            let version = Version::new(number, number.rotate_left(31) >> 2);
            let etag = version.etag();
            assert_eq!(*etag, format!("\"{:016x}-{:016x}\"", version.incarnation, version.sequence));
            assert_eq!(Version::from_etag(etag.as_bytes()), Some(version));
            assert_eq!(etag.parse::<Version>().unwrap(), version);
            assert_eq!(version.to_string(), *etag);
        }
        let text = *b"\"0123456789abcdef-0123456789abcdef\"";
        assert!(Version::from_etag(&text).is_some());
        // Any change gives another version's text, or none.
        for at in 0..text.len() {
            for character in 0..=255 {
                let mut other = text;
                other[at] = character;
                let read = Version::from_etag(&other);
                assert!(
                    read.is_none_or(|version| version.etag().as_bytes() == other),
                    "{:?}",
                    other.escape_ascii().to_string()
                );
            }
            assert_eq!(Version::from_etag(&text[..at]), None);
        }
        let wrong = "W/\"0\"".parse::<Version>().unwrap_err();
        assert!(matches!(wrong, Error::InvalidArgument(_)));
    }
}
