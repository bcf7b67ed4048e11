//! An input: a file or standard input, decompressed.
//!
//! A resumed import recognizes its input by its raw length (unknown for standard input) and a hash
//! of its first raw MiB.

use std::{
    fs::{self, File},
    io::{self, BufReader, Cursor, Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::{
    folder::FolderArchive,
    packed::{Compression, recognise},
    rows::{MARK, RowStyle},
    text::{Encoding, JUDGED_BYTES, check_encoding, check_lines},
};
use crate::exit::{INPUT, failure};

const IDENTITY_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub length: Option<u64>,
    pub head_hash: String,
}

impl Identity {
    pub fn matches(&self, other: &Identity) -> bool {
        let lengths_differ = matches!((self.length, other.length), (Some(one), Some(other)) if one != other);
        self.head_hash == other.head_hash && !lengths_differ
    }
}

pub struct Source {
    pub identity: Identity,
    pub raw_bytes: Arc<AtomicU64>,
    compression: Compression,
    head: Vec<u8>,
    rest: Rest,
}

enum Rest {
    File(File),
    Stream(Box<dyn Read + Send>),
}

impl Source {
    pub fn open_discs(path: &Path) -> Result<Source> {
        let cannot = || format!("cannot read {}", path.display());
        let archive = match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => FolderArchive::of_folder(path).with_context(cannot)?,
            Ok(metadata) if metadata.is_file() => {
                let source = Source::open(path)?;
                let is_text = source.head.starts_with(b"#") || source.head.starts_with(b"DISCID=");
                if !is_text || source.compression != Compression::None {
                    return Ok(source);
                }
                FolderArchive::of_file(path).with_context(cannot)?
            }
            _ => return Source::open(path),
        };
        Source::from_rest(Rest::Stream(Box::new(archive))).with_context(cannot)
    }

    pub fn open(path: &Path) -> Result<Source> {
        let rest = if path == Path::new("-") {
            Rest::Stream(Box::new(io::stdin()))
        } else {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            let metadata = file.metadata().with_context(|| format!("cannot open {}", path.display()))?;
            if metadata.is_dir() {
                return Err(failure(
                    INPUT,
                    format!("{} is a folder: give a file, or - for standard input", path.display()),
                ));
            }
            // A pipe or a device has no length, and cannot seek.
            if metadata.is_file() { Rest::File(file) } else { Rest::Stream(Box::new(file)) }
        };
        Source::from_rest(rest).with_context(|| format!("cannot read {}", path.display()))
    }

    fn from_rest(mut rest: Rest) -> Result<Source> {
        let mut head = Vec::new();
        let length = match &mut rest {
            Rest::File(file) => {
                file.by_ref().take(IDENTITY_BYTES as u64).read_to_end(&mut head)?;
                Some(file.metadata()?.len())
            }
            Rest::Stream(stream) => {
                stream.by_ref().take(IDENTITY_BYTES as u64).read_to_end(&mut head)?;
                None
            }
        };
        let identity = Identity { length, head_hash: format!("{:032x}", XxHash3_128::oneshot(&head)) };
        let compression = recognise(&head)?;
        Ok(Source { identity, raw_bytes: Arc::new(AtomicU64::new(0)), compression, head, rest })
    }

    pub fn into_reader(self, offset: u64) -> Result<Box<dyn Read + Send>> {
        let Source { raw_bytes, compression, head, rest, .. } = self;
        let rest: Box<dyn Read + Send> = match (rest, compression) {
            (Rest::File(mut file), Compression::None) => {
                file.seek(SeekFrom::Start(offset))?;
                raw_bytes.store(offset, Ordering::Relaxed);
                return Ok(Box::new(BufReader::with_capacity(1 << 18, Counted { inner: file, raw_bytes })));
            }
            (Rest::File(file), _) => Box::new(file),
            (Rest::Stream(stream), _) => stream,
        };
        let counted = Counted { inner: Cursor::new(head).chain(rest), raw_bytes };
        let buffered = BufReader::with_capacity(1 << 18, counted);
        skip(compression.decoder(buffered)?, offset)
    }

    pub fn into_text(self, offset: u64, style: RowStyle) -> Result<Box<dyn Read + Send>> {
        let head = self.beginning(JUDGED_BYTES);
        check_encoding(&head)?;
        let encoding = Encoding::of_mark(&head);
        let mut text = Vec::new();
        let _ = encoding.reader(Box::new(head.as_slice())).read_to_end(&mut text);
        check_lines(&text, style)?;
        match encoding {
            Encoding::Bytes => self.into_reader(offset),
            _ => skip(encoding.reader(self.into_reader(0)?), offset),
        }
    }
}

fn skip(mut reader: Box<dyn Read + Send>, bytes: u64) -> Result<Box<dyn Read + Send>> {
    let skipped = io::copy(&mut reader.by_ref().take(bytes), &mut io::sink()).map_err(unreadable)?;
    if skipped < bytes {
        return Err(failure(INPUT, format!("the input ends at byte {skipped}, before byte {bytes}")));
    }
    Ok(reader)
}

impl Source {
    pub fn begins_with(&self, text: &[u8]) -> bool {
        let head = self.beginning(2 * (MARK.len() + text.len()));
        let mut beginning = Vec::new();
        let _ = Encoding::of_mark(&head).reader(Box::new(head.as_slice())).read_to_end(&mut beginning);
        beginning.strip_prefix(MARK).unwrap_or(&beginning).starts_with(text)
    }

    pub fn into_unmarked_text(self) -> Result<Box<dyn Read + Send>> {
        let mark = if self.beginning(MARK.len()) == MARK { MARK.len() as u64 } else { 0 };
        self.into_text(mark, RowStyle::Lines)
    }

    fn beginning(&self, bytes: usize) -> Vec<u8> {
        let mut beginning = Vec::new();
        if let Ok(reader) = self.compression.decoder(self.head.as_slice()) {
            let _ = reader.take(bytes as u64).read_to_end(&mut beginning);
        }
        beginning
    }
}

pub fn unreadable(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(_) => anyhow::Error::new(error).context("cannot read the input"),
        None => failure(INPUT, format!("the input is damaged: {error}")),
    }
}

struct Counted<R> {
    inner: R,
    raw_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.raw_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
