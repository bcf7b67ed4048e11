//! Percent-encoding, and the parameters of a query.

use crate::problem::Problem;
use std::{borrow::Cow, str::FromStr, time::Duration};

/// Decodes `%NN`. Borrows a text without escapes.
pub fn decode(text: &str) -> Result<Cow<'_, [u8]>, Problem> {
    decode_bytes(text.as_bytes(), false)
}

/// Decodes the name of a tree.
pub fn decode_name(text: &str) -> Result<Cow<'_, str>, Problem> {
    let not_text = || Problem::bad_request("the name of a tree must be UTF-8, with other bytes as %NN");
    match decode(text)? {
        Cow::Borrowed(bytes) => str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| not_text()),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| not_text()),
    }
}

fn decode_bytes(text: &[u8], plus_is_space: bool) -> Result<Cow<'_, [u8]>, Problem> {
    if !text.iter().any(|byte| *byte == b'%' || (plus_is_space && *byte == b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let digits = rest.split_at_checked(2).and_then(|(digits, after)| {
                    rest = after;
                    Some(digit(digits[0])? << 4 | digit(digits[1])?)
                });
                digits.ok_or_else(|| {
                    Problem::bad_request("a % in the URL needs two hexadecimal digits: write %25 for the character %")
                })?
            }
            b'+' if plus_is_space => b' ',
            byte => *byte,
        });
    }
    Ok(Cow::Owned(bytes))
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).map(|digit| digit as u8)
}

/// The parameters of a URL. Texts without escapes are borrowed.
#[derive(Clone, Copy)]
pub struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    /// Refuses unknown and repeated parameters, since a mistyped one would silently change the
    /// result.
    pub fn of(text: Option<&'a str>, known: &[&str]) -> Result<Query<'a>, Problem> {
        let query = Query(text.unwrap_or_default());
        let mut seen = 0_u32;
        for (name, _) in query.pairs() {
            let Some(at) = known.iter().position(|known| *known == name) else {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::bad_request(format!("no parameter is named {name:?} here; there are: {known}")));
            };
            if seen & 1 << at != 0 {
                return Err(Problem::bad_request(format!("the parameter {name} is given twice")));
            }
            seen |= 1 << at;
        }
        Ok(query)
    }

    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let parts = self.0.split('&').filter(|part| !part.is_empty());
        parts.map(|part| part.split_once('=').unwrap_or((part, "")))
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.pairs().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    pub fn has(self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// Returns a parameter's bytes. A plus sign is a space, as in HTML forms.
    pub fn bytes(self, name: &str) -> Result<Option<Cow<'a, [u8]>>, Problem> {
        self.text(name).map(|text| decode_bytes(text.as_bytes(), true)).transpose()
    }

    pub fn number<N: FromStr>(self, name: &str, range: &str) -> Result<Option<N>, Problem> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Problem::bad_request(format!("{name}={text} is not a number {range}")))
        };
        self.text(name).map(parse).transpose()
    }

    /// Returns a time in seconds.
    pub fn seconds(self, name: &str) -> Result<Option<Duration>, Problem> {
        Ok(self
            .number(name, "of seconds from 0 to 4294967295")?
            .map(|seconds: u32| Duration::from_secs(seconds.into())))
    }

    /// Returns a flag: `true`, `false`, or the name alone for true.
    pub fn flag(self, name: &str) -> Result<bool, Problem> {
        match self.text(name) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(text) => Err(Problem::bad_request(format!("{name}={text}: give true or false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_of_every_escape_gives_the_byte() {
        for byte in 0..=255_u8 {
            for text in [format!("a%{byte:02x}b"), format!("a%{byte:02X}b")] {
                assert_eq!(decode(&text).unwrap()[..], [b'a', byte, b'b']);
            }
        }
        assert!(matches!(decode("plain+text").unwrap(), Cow::Borrowed(b"plain+text")));
        for wrong in ["%", "%4", "a%g0", "%0g", "%%41", "%+1"] {
            assert!(decode(wrong).is_err(), "{wrong}");
        }
        assert!(decode_name("%ff").is_err());
        assert_eq!(decode_name("%c3%a4").unwrap(), "ä");
    }

    #[test]
    fn query_refuses_unknown_and_repeated_parameters() {
        let query = Query::of(Some("a=1+2%2B&&b"), &["a", "b"]).unwrap();
        assert_eq!(query.bytes("a").unwrap().unwrap()[..], b"1 2+"[..]);
        assert!(query.flag("b").unwrap());
        assert!(query.bytes("c").unwrap().is_none());
        assert!(Query::of(Some("A=1"), &["a"]).is_err());
        assert!(Query::of(Some("a=1&a=1"), &["a"]).is_err());
        assert!(Query::of(Some("a=-1"), &["a"]).unwrap().seconds("a").is_err());
        assert!(Query::of(Some("a=yes"), &["a"]).unwrap().flag("a").is_err());
    }
}
