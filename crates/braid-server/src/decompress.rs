//! Decodes bodies of requests, in bounded memory.
//!
//! The limits count decoded bytes, and decoding stops at a limit: a kilobyte that would expand to a
//! gigabyte costs no more than the limit. A decoder returns one buffer at a time and takes input
//! when it needs some. It holds a window of at most 8 MiB, the maximum of RFC 9659; so each coded
//! body takes one of the turns of large ones.

use crate::{coding::Coding, problem::Problem};
use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderValue},
};
use std::io::{self, BufRead, Read};

/// Maximum window of a zstd body: 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Bytes that are decoded at once: about 0.2 ms.
const STEP_BYTES: usize = 64 << 10;

/// Returns the coding of a request's body.
pub fn coding_of(headers: &HeaderMap) -> Result<Option<Coding>, Problem> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    let (Some(given), second) = (codings.next(), codings.next()) else { return Ok(None) };
    let name = given.to_str().unwrap_or_default().trim();
    if second.is_none() && name.eq_ignore_ascii_case("identity") {
        return Ok(None);
    }
    match Coding::of(name).filter(|_| second.is_none()) {
        Some(coding) => Ok(Some(coding)),
        None => {
            let detail = "a body may have one Content-Encoding, gzip or zstd: send it so, or as it is";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Unsupported coding", detail)
                .with_header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, zstd")))
        }
    }
}

/// The input that has arrived and is not decoded yet.
struct Input {
    part: Bytes,
    is_ended: bool,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.len().min(into.len());
        self.part.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}

/// The decoders keep their state when this returns `WouldBlock`.
impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.part.is_empty() && !self.is_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.part)
    }

    fn consume(&mut self, count: usize) {
        self.part.advance(count);
    }
}

enum Format {
    Gzip(MultiGzDecoder<Input>),
    Zstd(zstd::stream::read::Decoder<'static, Input>),
}

/// A result of [`Decoder::step`].
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    Bytes(Bytes),
    NeedsInput,
    Ended,
}

/// Decodes a body part by part.
pub struct Decoder {
    format: Format,
    has_input: bool,
}

impl Decoder {
    pub fn new(coding: Coding) -> io::Result<Decoder> {
        let input = Input { part: Bytes::new(), is_ended: false };
        let format = match coding {
            Coding::Gzip => Format::Gzip(MultiGzDecoder::new(input)),
            Coding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Format::Zstd(decoder)
            }
        };
        Ok(Decoder { format, has_input: false })
    }

    fn input(&mut self) -> &mut Input {
        match &mut self.format {
            Format::Gzip(decoder) => decoder.get_mut(),
            Format::Zstd(decoder) => decoder.get_mut(),
        }
    }

    /// Adds a part of the body, after [`Step::NeedsInput`]; `None` at its end.
    pub fn feed(&mut self, part: Option<Bytes>) {
        self.has_input |= part.as_ref().is_some_and(|part| !part.is_empty());
        let input = self.input();
        match part {
            Some(part) => input.part = part,
            None => input.is_ended = true,
        }
    }

    /// Decodes up to 64 KiB.
    pub fn step(&mut self) -> Result<Step, Problem> {
        let mut decoded = vec![0; STEP_BYTES];
        let read = match &mut self.format {
            Format::Gzip(decoder) => decoder.read(&mut decoded),
            Format::Zstd(decoder) => decoder.read(&mut decoded),
        };
        match read {
            Ok(0) if self.has_input => Ok(Step::Ended),
            // An empty body is no frame of either format.
            Ok(0) => Err(broken("it is empty")),
            Ok(count) => {
                decoded.truncate(count);
                Ok(Step::Bytes(decoded.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Step::NeedsInput),
            Err(error) => Err(broken(error)),
        }
    }
}

fn broken(why: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!("the body is not in the format of its Content-Encoding: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn coded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Zstd => zstd::encode_all(bytes, 3).unwrap(),
        }
    }

    /// Feeds parts of a length and returns the decoded bytes.
    fn decode(coding: Coding, bytes: &[u8], len: usize) -> Result<Vec<u8>, Problem> {
        let mut decoder = Decoder::new(coding).unwrap();
        let mut parts = bytes.chunks(len);
        let mut decoded = Vec::new();
        loop {
            match decoder.step()? {
                Step::Bytes(bytes) => {
                    assert!(bytes.len() <= STEP_BYTES);
                    decoded.extend_from_slice(&bytes);
                }
                Step::NeedsInput => decoder.feed(parts.next().map(Bytes::copy_from_slice)),
                Step::Ended => return Ok(decoded),
            }
        }
    }

    #[test]
    fn body_in_parts_of_any_length_is_decoded() {
        let text: Vec<u8> = (0..40_000u32).flat_map(|number| (number % 977).to_string().into_bytes()).collect();
        for coding in [Coding::Gzip, Coding::Zstd] {
            let whole = coded(coding, &text);
            for len in [1, 2, 7, 1000, whole.len()] {
                assert!(decode(coding, &whole, len).unwrap() == text, "{coding:?} {len}");
            }
            assert_eq!(decode(coding, &coded(coding, b""), 1).unwrap(), b"");
            let twice = [whole.clone(), whole].concat();
            assert_eq!(decode(coding, &twice, 100).unwrap().len(), 2 * text.len());
        }
    }

    #[test]
    fn body_cut_short_or_damaged_is_refused() {
        let text = b"a text that is coded, a text that is coded".repeat(3);
        for coding in [Coding::Gzip, Coding::Zstd] {
            let whole = coded(coding, &text);
            for len in 0..whole.len() {
                assert!(decode(coding, &whole[..len], 5).is_err(), "{coding:?} {len}");
            }
            let trailed = [&whole[..], b"more"].concat();
            assert!(decode(coding, &trailed, 5).is_err());
            for bit in 0..whole.len() * 8 {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // No panic; gzip has bits without a meaning, and zstd frames may lack a checksum.
                let _ = decode(coding, &damaged, 5);
            }
        }
    }

    /// The window of such a frame would take 128 MiB.
    #[test]
    fn window_over_the_limit_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(27)).unwrap();
        encoder.write_all(&[1; 100_000]).unwrap();
        assert!(decode(Coding::Zstd, &encoder.finish().unwrap(), 1000).is_err());
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(23)).unwrap();
        encoder.write_all(&[1; 100_000]).unwrap();
        assert_eq!(decode(Coding::Zstd, &encoder.finish().unwrap(), 1000).unwrap().len(), 100_000);
    }
}
