//! The dates of an X.509 certificate (RFC 5280, section 4.1), read from its DER.
//!
//! `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE { version [0] OPTIONAL, serialNumber INTEGER,
//! signature SEQUENCE, issuer SEQUENCE, validity SEQUENCE { notBefore, notAfter }, .. }, .. }`

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Returns the first and the last second of a certificate's validity as Unix times; `None` if it
/// cannot be parsed.
pub fn validity(certificate: &[u8]) -> Option<(i64, i64)> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (mut fields, _) = element(certificate, SEQUENCE)?;
    if let Some((_, after)) = element(fields, VERSION) {
        fields = after;
    }
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = element(fields, tag)?;
    }
    let (dates, _) = element(fields, SEQUENCE)?;
    let (from, dates) = time(dates)?;
    let (until, _) = time(dates)?;
    Some((from, until))
}

/// Splits an element with a tag into its content and the bytes after it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (len, mut rest) = rest.split_first()?;
    if *first != tag {
        return None;
    }
    let mut total = usize::from(*len);
    if let Some(digits) = len.checked_sub(0x80) {
        // Longer ones than 2^24 bytes do not occur.
        if !(1..=3).contains(&digits) {
            return None;
        }
        let (digits, after) = rest.split_at_checked(usize::from(digits))?;
        total = digits.iter().fold(0, |total, digit| total << 8 | usize::from(*digit));
        rest = after;
    }
    rest.split_at_checked(total)
}

fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, after, century) = match element(bytes, UTC_TIME) {
        Some((text, after)) => (text, after, true),
        None => element(bytes, GENERALIZED_TIME).map(|(text, after)| (text, after, false))?,
    };
    let digits = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let year_len = if century { 2 } else { 4 };
    if digits.len() != year_len + 10 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = digits.split_at(year_len);
    let year: i64 = year.parse().ok()?;
    let year = match century {
        true if year < 50 => 2000 + year,
        true => 1900 + year,
        false => year,
    };
    let part = |at: usize| rest.get(2 * at..2 * at + 2).and_then(|part| part.parse::<i64>().ok());
    let (month, day) = (part(0)?, part(1)?);
    let seconds = part(2)? * 3600 + part(3)? * 60 + part(4)?;
    Some((days_since_1970(year, month, day)? * 24 * 3600 + seconds, after))
}

/// Counts the days by years that begin in March, so that a leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) {
        return None;
    }
    let year = if month > 2 { year } else { year - 1 };
    let month = (month + 9) % 12;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some(days - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1969, 12, 31), -1),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 11, 30), 20_787),
            ((2100, 3, 1), 47_541),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), Some(days), "{date:?}");
        }
        assert_eq!(days_since_1970(2026, 13, 1), None);
    }

    #[test]
    fn times_have_two_forms() {
        assert_eq!(time(b"\x17\x0d700101000001Z").unwrap().0, 1);
        assert_eq!(time(b"\x17\x0d491231235959Z").unwrap().0, 2_524_607_999);
        assert_eq!(time(b"\x18\x0f20500101000000Z!"), Some((2_524_608_000, &b"!"[..])));
        let wrong: [&[u8]; 6] =
            [b"", b"\x17", b"\x17\x0d7001010000", b"\x17\x0d7001010000+1Z", b"\x17\x0b7001010000Z", b"\x02\x01\x00"];
        for wrong in wrong {
            assert_eq!(time(wrong), None);
        }
    }

    /// Bytes of a file never cause a panic.
    #[test]
    fn damaged_certificate_has_no_dates() {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let dates = [element(0x17, b"260101000000Z"), element(0x18, b"21260101000000Z")].concat();
        let fields = [
            element(0xa0, b"\x02\x01\x02"),
            element(0x02, b"\x01"),
            element(0x30, b""),
            element(0x30, b""),
            element(0x30, &dates),
        ];
        let whole = element(0x30, &element(0x30, &fields.concat()));
        assert_eq!(validity(&whole), Some((1_767_225_600, 4_922_899_200)));
        for len in 0..whole.len() {
            assert_eq!(validity(&whole[..len]), None);
        }
        for at in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let _ = validity(&damaged);
        }
        assert_eq!(validity(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
