//! How keys, values and sizes are written on the command line and on the screen.

use std::fmt::Write as _;

use anyhow::Result;

use crate::exit::usage;

/// How a key is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyNotation {
    /// The bytes of the text itself; bytes that are no printable text are shown as \xNN.
    #[default]
    Text,
    /// Two hexadecimal digits a byte.
    Hex,
    /// A number, stored in 8 bytes, big-endian: record numbers.
    U64,
}

/// The bytes that `text` stands for.
pub fn parse_key(text: &str, notation: KeyNotation) -> Result<Vec<u8>> {
    match notation {
        KeyNotation::Text => Ok(text.as_bytes().to_vec()),
        KeyNotation::Hex => {
            parse_hex(text).ok_or_else(|| usage(format!("{text:?} is not a key in hexadecimal: two digits a byte")))
        }
        KeyNotation::U64 => match text.parse::<u64>() {
            Ok(number) => Ok(number.to_be_bytes().to_vec()),
            Err(_) => Err(usage(format!("{text:?} is not a number from 0 to {}", u64::MAX))),
        },
    }
}

/// The text that stands for a key; a key that is not of the notation is shown as text.
pub fn show_key(key: &[u8], notation: KeyNotation) -> String {
    match (notation, <[u8; 8]>::try_from(key)) {
        (KeyNotation::Hex, _) => to_hex(key),
        (KeyNotation::U64, Ok(bytes)) => u64::from_be_bytes(bytes).to_string(),
        _ => to_printable(key),
    }
}

/// Bytes as text, with `\xNN` for whatever is not printable.
pub fn to_printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut buffer = [0; 4];
                push_escaped(&mut out, character.encode_utf8(&mut buffer).as_bytes());
            } else {
                out.push(character);
            }
        }
        push_escaped(&mut out, chunk.invalid());
    }
    out
}

fn push_escaped(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\x{byte:02x}");
    }
}

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// A size such as `64M` or `1GiB`, in bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err(format!("{text:?} is not a size: write 64M or 1G")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("{text:?} is not a size: write 64M or 1G"))
}

/// A size for people.
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

/// A number with its thousands apart.
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
    fn keys_go_through_each_notation_and_back() {
        let key = 0x6162_6364_6566_6768_u64;
        for (notation, text) in [
            (KeyNotation::Text, "abcdefgh".to_owned()),
            (KeyNotation::Hex, "6162636465666768".to_owned()),
            (KeyNotation::U64, key.to_string()),
        ] {
            assert_eq!(parse_key(&text, notation).unwrap(), key.to_be_bytes());
            assert_eq!(show_key(&key.to_be_bytes(), notation), text);
        }
        assert_eq!(show_key(b"a\x00\xffb", KeyNotation::Text), "a\\x00\\xffb");
        assert!(parse_key("abc", KeyNotation::Hex).is_err());
        assert!(parse_key("-1", KeyNotation::U64).is_err());
    }

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("12"), Ok(12));
        assert!(parse_size("M").is_err() && parse_size("1X").is_err() && parse_size("99999999999G").is_err());
        assert_eq!((show_bytes(1023), show_bytes(1536)), ("1023 B".to_owned(), "1.50 KiB".to_owned()));
        assert_eq!(show_count(1_234_567), "1,234,567");
    }
}
