//! `Range` requests (RFC 9110, section 14): one range of bytes.
//!
//! Several ranges, other units and malformed ones are ignored, which the standard permits: the
//! answer is the whole value with status 200.

use std::ops::Range;

/// The part of a value to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    Bytes(Range<u64>),
    /// The range begins after the end: status 416.
    Unsatisfiable,
}

impl Part {
    /// Returns the part that the header `Range` selects of a value with `len` bytes.
    pub fn of(header: Option<&[u8]>, len: u64) -> Part {
        header.and_then(|header| Part::parse(header, len)).unwrap_or(Part::Whole)
    }

    fn parse(header: &[u8], len: u64) -> Option<Part> {
        let (unit, range) = str::from_utf8(header).ok()?.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") || range.contains(',') {
            return None;
        }
        let (first, last) = range.trim().split_once('-')?;
        if first.is_empty() {
            let count = number(last)?.min(len);
            return Some(if count == 0 { Part::Unsatisfiable } else { Part::Bytes(len - count..len) });
        }
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < first {
            return None;
        }
        Some(if first >= len { Part::Unsatisfiable } else { Part::Bytes(first..last.saturating_add(1).min(len)) })
    }
}

/// Parses digits only. A number above `u64::MAX` is that.
fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn range_selects_part_of_value() {
        for (header, len, part) in [
            ("bytes=0-0", 10, Part::Bytes(0..1)),
            ("bytes=2-5", 10, Part::Bytes(2..6)),
            ("Bytes= 2-5 ", 10, Part::Bytes(2..6)),
            ("bytes=2-", 10, Part::Bytes(2..10)),
            ("bytes=2-99", 10, Part::Bytes(2..10)),
            ("bytes=2-18446744073709551615", 10, Part::Bytes(2..10)),
            ("bytes=2-99999999999999999999", 10, Part::Bytes(2..10)),
            ("bytes=-3", 10, Part::Bytes(7..10)),
            ("bytes=-99", 10, Part::Bytes(0..10)),
            ("bytes=-0", 10, Part::Unsatisfiable),
            ("bytes=-1", 0, Part::Unsatisfiable),
            ("bytes=10-", 10, Part::Unsatisfiable),
            ("bytes=10-11", 10, Part::Unsatisfiable),
            ("bytes=0-", 0, Part::Unsatisfiable),
            ("bytes=5-2", 10, Part::Whole),
            ("bytes=0-1,3-4", 10, Part::Whole),
            ("bytes=+1-2", 10, Part::Whole),
            ("bytes=1", 10, Part::Whole),
            ("bytes=-", 10, Part::Whole),
            ("bytes=a-b", 10, Part::Whole),
            ("lines=1-2", 10, Part::Whole),
            ("bytes 1-2", 10, Part::Whole),
        ] {
            assert_eq!(Part::of(Some(header.as_bytes()), len), part, "{header} of {len}");
        }
        assert_eq!(Part::of(None, 10), Part::Whole);
        assert_eq!(Part::of(Some(b"bytes=0-\xff"), 10), Part::Whole);
    }
}
