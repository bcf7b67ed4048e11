//! Notation of keys, times and sizes. Values use the text form of `text_form`.

use std::time::Duration;

use anyhow::Result;
use braiddb::platform::{SystemTime, UNIX_EPOCH};
use braiddb_typed::text as tuple;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    exit::usage,
    text_form::{from_json, hex_json, parse_hex, parse_text, to_hex, to_json, to_text},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyNotation {
    /// Text form: printable text as is, `\\` for a backslash, `\xNN` for any other byte.
    #[default]
    Text,
    /// Two hexadecimal digits per byte.
    Hex,
    /// A number, stored as 8 bytes, big-endian. A key of another length is in the text form with
    /// its first byte as `\xNN`.
    U64,
    /// The JSON array of a tuple: `["pt",7]`. A key that is no tuple is `hex:` and its bytes.
    Tuple,
}

const HEX_PREFIX: &str = "hex:";

pub fn parse_key(text: &str, notation: KeyNotation) -> Result<Vec<u8>> {
    let bytes = match notation {
        KeyNotation::Text => parse_text(text),
        KeyNotation::Hex => {
            parse_hex(text).ok_or_else(|| format!("{text:?} is not a hexadecimal key: give two digits per byte"))
        }
        KeyNotation::U64 if text.is_empty() || text.starts_with("\\x") => parse_text(text),
        KeyNotation::U64 => match text.parse::<u64>() {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(format!("{text:?} is not a key in notation u64: give a number from 0 to {}", u64::MAX)),
        },
        KeyNotation::Tuple => parse_tuple(text),
    };
    bytes.map_err(usage)
}

fn parse_tuple(text: &str) -> Result<Vec<u8>, String> {
    if let Some(digits) = text.strip_prefix(HEX_PREFIX) {
        return parse_hex(digits).ok_or_else(|| format!("{digits:?} is not hexadecimal: give two digits per byte"));
    }
    let json = serde_json::from_str(text);
    let packed = json.map_err(|error| error.to_string()).and_then(|json| tuple::from_json(&json));
    packed.map_err(|why| format!("{text:?} is not a tuple: {why}; give a JSON array, such as [\"pt\",7]"))
}

pub fn show_key(key: &[u8], notation: KeyNotation) -> String {
    match (notation, <[u8; 8]>::try_from(key)) {
        (KeyNotation::Hex, _) => to_hex(key),
        (KeyNotation::U64, Ok(bytes)) => u64::from_be_bytes(bytes).to_string(),
        (KeyNotation::U64, Err(_)) => match key.split_first() {
            Some((first, rest)) => format!("\\x{first:02x}{}", to_text(rest)),
            None => String::new(),
        },
        (KeyNotation::Text, _) => to_text(key),
        (KeyNotation::Tuple, _) => tuple::show(key),
    }
}

/// A key as JSON: a number for an 8-byte key in notation u64, else a string or `{"hex": ".."}`.
pub fn key_to_json(key: &[u8], notation: KeyNotation) -> Value {
    match (notation, <[u8; 8]>::try_from(key)) {
        (KeyNotation::U64, Ok(bytes)) => json!(u64::from_be_bytes(bytes)),
        (KeyNotation::Hex, _) => hex_json(key),
        (KeyNotation::Tuple, _) => tuple::to_json(key).unwrap_or_else(|| hex_json(key)),
        _ => to_json(key),
    }
}

pub fn key_from_json(value: Value) -> Option<Vec<u8>> {
    match (value.as_u64(), &value) {
        (Some(number), _) => Some(number.to_be_bytes().to_vec()),
        (None, Value::Array(_)) => tuple::from_json(&value).ok(),
        (None, _) => from_json(value),
    }
}

pub fn parse_name(text: &str) -> Result<String, String> {
    String::from_utf8(parse_text(text)?).map_err(|_| "the name of a tree must be UTF-8".to_owned())
}

pub fn show_name(name: &str) -> String {
    to_text(name.as_bytes())
}

/// Formats a time to the second, in UTC: 2026-11-23T03:04:05Z (RFC 3339).
pub fn show_time(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

pub fn parse_time(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = rest.split_once('.').unwrap_or((rest, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_valid =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    // Years end at 9999, so a search is fast enough.
    if !is_valid {
        return None;
    }
    let january = (0..).find(|days| civil(*days).0 == year)?;
    let days = (january..january + 366).find(|days| civil(*days) == (year, month, day))?;
    let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
    Some(UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros))
}

const DAY_SECONDS: u64 = 24 * 3600;

fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Option<Vec<u64>> =
        text.split(separator).map(|part| Some(part).filter(is_number)?.parse().ok()).collect();
    parts?.try_into().ok()
}

/// Returns year, month and day (Gregorian) of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years start on 1 March, so that a leap day ends its year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(format!("{text:?} is not a size: give, for example, 64M or 1G")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a size: give, for example, 64M or 1G"))
}

pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{text:?} is not a number of seconds above 0"))
}

/// Maximum time to live: 1,000 years. Expiry times are microseconds in 64 bits.
const TTL_SECONDS_MAX: u64 = 31_557_600_000;

pub fn parse_ttl(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=TTL_SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| {
        format!("{text:?}: give a number of seconds, at least 1 and at most {TTL_SECONDS_MAX} (1,000 years)")
    })
}

pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1000.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = if scaled < 10.0 { 2 } else { 1 };
    format!("{scaled:.digits$} {}", UNITS[unit])
}

pub fn show_rate(per_second: f64) -> String {
    let mut scale = 1.0;
    while per_second / scale >= 1000.0 {
        scale *= 10.0;
    }
    match per_second {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => show_count(((rate / scale).round() * scale) as u64),
    }
}

/// "1 record", "2,000 entries".
pub fn show_counted(count: u64, noun: &str) -> String {
    let shown = show_count(count);
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (count, stem) {
        (1, _) => format!("{shown} {noun}"),
        (_, Some(stem)) => format!("{shown} {stem}ies"),
        (_, None) if noun.ends_with('s') => format!("{shown} {noun}es"),
        (_, None) => format!("{shown} {noun}s"),
    }
}

pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_noun_agrees_with_count() {
        for (count, noun, text) in [
            (1, "record", "1 record"),
            (0, "tree", "0 trees"),
            (2_000, "entry", "2,000 entries"),
            (2, "loss", "2 losses"),
            (2, "key", "2 keys"),
        ] {
            assert_eq!(show_counted(count, noun), text);
        }
    }

    #[test]
    fn time_round_trips_and_invalid_text_is_refused() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_402_000, "2026-11-23T02:46:40Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(show_time(time), text);
            assert_eq!(parse_time(text), Some(time));
        }
        let with_fraction = UNIX_EPOCH + Duration::from_micros(1_500_000);
        assert_eq!(parse_time("1970-01-01T00:00:01.5Z"), Some(with_fraction));
        for wrong in
            ["", "Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-01-01T24:00:00Z"]
        {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
        for wrong in [
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00Z",
            "2026-1-+1T00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.xZ",
        ] {
            assert_eq!(parse_time(wrong).is_some(), wrong.ends_with(".Z"), "{wrong}");
        }
    }

    #[test]
    fn key_in_each_notation_round_trips() {
        let key = 0x6162_6364_6566_6768_u64;
        for (notation, text) in [
            (KeyNotation::Text, "abcdefgh".to_owned()),
            (KeyNotation::Hex, "6162636465666768".to_owned()),
            (KeyNotation::U64, key.to_string()),
            (KeyNotation::Tuple, "hex:6162636465666768".to_owned()),
        ] {
            assert_eq!(parse_key(&text, notation).unwrap(), key.to_be_bytes());
            assert_eq!(show_key(&key.to_be_bytes(), notation), text);
        }
        assert_eq!(show_key(b"a\x00\xffb\\", KeyNotation::Text), "a\\x00\\xffb\\\\");
        assert!(parse_key("abc", KeyNotation::Hex).is_err());
        for wrong in ["-1", "1x", "abc", "\\y", "18446744073709551616"] {
            assert!(parse_key(wrong, KeyNotation::U64).is_err(), "{wrong}");
        }
    }

    /// The text key 258 was shown as the number 258.
    #[test]
    fn key_of_any_length_in_each_notation_round_trips() {
        let keys: [&[u8]; 10] = [
            b"",
            b"258",
            b"\0\0\0\0\0\0\x01\x02",
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
            b"abcdefghi",
            b"\\",
            b"\xff",
            b"12345678",
            b"\x14",
            b"\x05\x15\x01\0\x02a\0",
        ];
        for notation in [KeyNotation::Text, KeyNotation::Hex, KeyNotation::U64, KeyNotation::Tuple] {
            let mut shown: Vec<String> = keys.iter().map(|key| show_key(key, notation)).collect();
            let mut json: Vec<String> = keys.iter().map(|key| key_to_json(key, notation).to_string()).collect();
            for (key, (text, json)) in keys.iter().zip(shown.iter().zip(&json)) {
                assert_eq!(&parse_key(text, notation).unwrap(), key, "{text} {notation:?}");
                let back = key_from_json(serde_json::from_str(json).unwrap());
                assert_eq!(back.as_deref(), Some(*key), "{json} {notation:?}");
            }
            for all in [&mut shown, &mut json] {
                all.sort();
                all.dedup();
                assert_eq!(all.len(), keys.len(), "{notation:?}");
            }
        }
    }

    /// A huge number was stored as the greatest time there is.
    #[test]
    fn time_to_live_is_1_second_to_1000_years() {
        assert_eq!((parse_ttl("1"), parse_ttl("31557600000")), (Ok(1), Ok(31_557_600_000)));
        for wrong in ["0", "31557600001", "18446744073709551615", "18446744073709551616", "-1", "1.5", "soon", ""] {
            assert!(parse_ttl(wrong).is_err_and(|why| why.contains("1,000 years")), "{wrong}");
        }
    }

    #[test]
    fn size_parses_and_counts_format() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("12"), Ok(12));
        assert!(parse_size("M").is_err() && parse_size("1X").is_err() && parse_size("99999999999G").is_err());
        assert_eq!((show_bytes(1023), show_bytes(1536)), ("1023 B".to_owned(), "1.50 KiB".to_owned()));
        assert_eq!(show_count(1_234_567), "1,234,567");
        let rates = [0.0, 1.26, 12.6, 999.6, 1_732.488_8, 999_999.0, 1_234_567.0].map(show_rate);
        assert_eq!(rates, ["0.0", "1.3", "13", "1,000", "1,730", "1,000,000", "1,230,000"]);
    }
}
