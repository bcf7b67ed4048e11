//! The bearer token.

use std::{fmt::Write as _, hint::black_box, io};

/// Bytes of randomness in a generated token.
const RANDOM_BYTES: usize = 24;
/// Minimum length of a given token. Shorter ones can be guessed.
const LEN_MIN: usize = 16;

pub struct Token(String);

impl Token {
    pub fn generate() -> io::Result<Token> {
        let mut random = [0; RANDOM_BYTES];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let mut text = String::with_capacity(2 * RANDOM_BYTES);
        for byte in random {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Token(text))
    }

    pub fn given(text: String) -> io::Result<Token> {
        if text.len() < LEN_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            let message = format!("a token needs at least {LEN_MIN} visible ASCII characters and no spaces");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Token(text))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns true for the `Authorization` header of this token.
    pub fn is_in(&self, header: &[u8]) -> bool {
        let Some((scheme, given)) = header.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && is_equal(self.0.as_bytes(), given.trim_ascii())
    }
}

/// Takes the same time for all given texts of one length. Depends on no byte of the secret.
fn is_equal(secret: &[u8], given: &[u8]) -> bool {
    let difference =
        given.iter().zip(secret.iter().cycle()).fold(0, |difference, (a, b)| black_box(difference | (a ^ b)));
    black_box(difference) == 0 && secret.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_with_another_token_is_refused() {
        let token = Token::given("0123456789abcdef".to_owned()).unwrap();
        assert!(token.is_in(b"Bearer 0123456789abcdef"));
        assert!(token.is_in(b"bearer  0123456789abcdef "));
        let wrong: [&[u8]; 8] = [
            b"",
            b"Bearer",
            b"Bearer ",
            b"Bearer 0123456789abcdeg",
            b"Bearer 1123456789abcdef",
            b"Bearer 0123456789abcde",
            b"Bearer 0123456789abcdef0123456789abcdef",
            b"Basic  0123456789abcdef",
        ];
        for header in wrong {
            assert!(!token.is_in(header), "{}", header.escape_ascii());
        }
    }

    #[test]
    fn generated_tokens_differ_and_given_ones_must_be_long() {
        let (first, second) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_ne!(first.text(), second.text());
        assert_eq!(first.text().len(), 48);
        for wrong in ["", "short", "with spaces in the text", "tab\tin the text here", "ümlaut in the text"] {
            assert!(Token::given(wrong.to_owned()).is_err(), "{wrong}");
        }
    }
}
