//! Compressed inputs: detected by their first bytes.
//!
//! Each format may have several streams in sequence. Other data is an error at its position.

use std::io::{self, BufRead, Read};

use anyhow::Result;
use flate2::bufread::GzDecoder;

use crate::exit::{INPUT, failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Bzip2,
    Zstd,
}

const BZIP2_BLOCK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
const BZIP2_END: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];

const OTHERS: [(&[u8], &str); 9] = [
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz-compressed"),
    (b"PK\x03\x04", "a zip archive or a spreadsheet workbook"),
    (&[b'7', b'z', 0xbc, 0xaf], "a 7z archive"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4-compressed"),
    (&[0x1f, 0x9d], "compressed by `compress`"),
    (b"Rar!\x1a\x07", "a rar archive"),
    (&[0xd0, 0xcf, 0x11, 0xe0], "a spreadsheet workbook"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3\0", "an SQLite database"),
];

pub fn recognise(head: &[u8]) -> Result<Compression> {
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        let advice = "decompress or convert it first";
        return Err(failure(INPUT, format!("the input is {what}: {advice}")));
    }
    if is_beginning(head, OTHERS[0].0) || is_beginning(head, &[0x28, 0xb5, 0x2f, 0xfd]) {
        return Err(failure(INPUT, "the input is compressed, but ends within its first bytes: get a complete copy"));
    }
    let level = head.get(3).is_none_or(|level| (b'1'..=b'9').contains(level));
    let block = head.get(4..head.len().min(10)).unwrap_or_default();
    let bzip2 = head.starts_with(b"BZh") && level && (BZIP2_BLOCK.starts_with(block) || BZIP2_END.starts_with(block));
    let skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18];
    match head {
        [0x1f, 0x8b, ..] | [0x1f] => Ok(Compression::Gzip),
        _ if bzip2 => Ok(Compression::Bzip2),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Compression::Zstd),
        _ if skippable => Ok(Compression::Zstd),
        _ => Ok(Compression::None),
    }
}

fn is_beginning(head: &[u8], magic: &[u8]) -> bool {
    head.len() >= 2 && head.len() < magic.len() && magic.starts_with(head)
}

impl Compression {
    pub fn decoder<'a>(self, input: impl BufRead + Send + 'a) -> io::Result<Box<dyn Read + Send + 'a>> {
        Ok(match self {
            Compression::None => Box::new(input),
            Compression::Gzip => Box::new(Named { inner: GzipReader::new(input), form: "gzip" }),
            Compression::Bzip2 => Box::new(Named { inner: bzip2::bufread::MultiBzDecoder::new(input), form: "bzip2" }),
            Compression::Zstd => {
                Box::new(Named { inner: zstd::stream::read::Decoder::with_buffer(input)?, form: "zstd" })
            }
        })
    }
}

struct Named<R> {
    inner: R,
    form: &'static str,
}

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let form = self.form;
        self.inner.read(buffer).map_err(|error| {
            let text = match (error.raw_os_error(), error.kind()) {
                (Some(_), _) | (_, io::ErrorKind::Interrupted) => return error,
                (_, io::ErrorKind::UnexpectedEof) => format!("its {form} data is cut off: get a complete copy"),
                (_, io::ErrorKind::InvalidInput) if error.get_ref().is_some_and(|inner| inner.is::<Trailing>()) => {
                    error.to_string()
                }
                _ => format!("its {form} data is wrong, or other data follows it ({error}): get a complete copy"),
            };
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }
}

/// Ignores zeros after the streams, which tapes and block devices add.
struct GzipReader<R> {
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipReader<R> {
    fn new(input: R) -> GzipReader<R> {
        GzipReader { decoder: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.decoder else { return Ok(0) };
            let count = decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(mut rest) = self.decoder.take().map(GzDecoder::into_inner) else { return Ok(0) };
            if begins_stream(&mut rest)? {
                self.decoder = Some(GzDecoder::new(rest));
            }
        }
    }
}

/// Ignores zeros up to the end; other data is an error.
fn begins_stream(rest: &mut impl BufRead) -> io::Result<bool> {
    let mut zeros = 0;
    loop {
        let bytes = rest.fill_buf()?;
        let Some(at) = bytes.iter().position(|&byte| byte != 0) else {
            let count = bytes.len();
            if count == 0 {
                return Ok(false);
            }
            zeros += count;
            rest.consume(count);
            continue;
        };
        return match bytes[at..] {
            [0x1f] | [0x1f, 0x8b, ..] if at + zeros == 0 => Ok(true),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, Trailing)),
        };
    }
}

#[derive(Debug)]
struct Trailing;

impl std::fmt::Display for Trailing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(
            "other data follows its gzip data: if it does not belong there, decompress the input with `gzip -dc`",
        )
    }
}

impl std::error::Error for Trailing {}
