//! A file or standard input, decompressed.
//!
//! What it is compressed with is recognised by its first bytes, not by its name. The identity of an
//! input, by which a resumed import knows it again, is its length (unless it comes from standard
//! input) and a hash of its first MiB, both as they lie on disk.

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

/// How much of an input its hash covers.
const IDENTITY_BYTES: usize = 1 << 20;

/// By what an input is known again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its size; unknown on standard input.
    pub length: Option<u64>,
    /// XXH3-128 of its first MiB, in hexadecimal.
    pub head_hash: String,
}

impl Identity {
    /// Whether both may be of one input.
    pub fn matches(&self, other: &Identity) -> bool {
        let lengths_differ = matches!((self.length, other.length), (Some(one), Some(other)) if one != other);
        self.head_hash == other.head_hash && !lengths_differ
    }
}

/// An open input.
pub struct Source {
    /// What it is.
    pub identity: Identity,
    /// How many bytes were read of it so far, before decompression.
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
    /// Opens discs: a folder of files, a single file as it lies in a folder, or an archive of them.
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

    /// Opens a path; `-` is standard input.
    pub fn open(path: &Path) -> Result<Source> {
        let rest = if path == Path::new("-") {
            Rest::Stream(Box::new(io::stdin()))
        } else {
            let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            let metadata = file.metadata().with_context(|| format!("cannot open {}", path.display()))?;
            if metadata.is_dir() {
                return Err(failure(INPUT, format!("{} is a folder, not a file", path.display())));
            }
            // A pipe or a device has no length and cannot be sought.
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

    /// The decompressed bytes from `offset` on. In a plain file the bytes before are not read at all.
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

    /// The text from `offset` on, as UTF-8. Refuses what is no text, or whose lines end otherwise.
    pub fn into_text(self, offset: u64, style: RowStyle) -> Result<Box<dyn Read + Send>> {
        let head = self.beginning(JUDGED_BYTES);
        check_encoding(&head)?;
        let encoding = Encoding::of_mark(&head);
        let mut text = Vec::new();
        // An error, such as half a character at the end of the head, is met again when all is read.
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
    /// Whether the input begins with this text, which is short, after decompression and a byte
    /// order mark.
    pub fn begins_with(&self, text: &[u8]) -> bool {
        let head = self.beginning(2 * (MARK.len() + text.len()));
        let mut beginning = Vec::new();
        let _ = Encoding::of_mark(&head).reader(Box::new(head.as_slice())).read_to_end(&mut beginning);
        beginning.strip_prefix(MARK).unwrap_or(&beginning).starts_with(text)
    }

    /// The bytes of a text without a byte order mark.
    pub fn into_unmarked_text(self) -> Result<Box<dyn Read + Send>> {
        let mark = if self.beginning(MARK.len()) == MARK { MARK.len() as u64 } else { 0 };
        self.into_text(mark, RowStyle::Lines)
    }

    /// The first bytes after decompression, as far as they can be read.
    fn beginning(&self, bytes: usize) -> Vec<u8> {
        let mut beginning = Vec::new();
        if let Ok(reader) = self.compression.decoder(self.head.as_slice()) {
            let _ = reader.take(bytes as u64).read_to_end(&mut beginning);
        }
        beginning
    }
}

/// An error of reading an input: what the system did not say itself is the input's own fault.
pub fn unreadable(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(_) => anyhow::Error::new(error).context("cannot read the input"),
        None => failure(INPUT, format!("the input is damaged: {error}")),
    }
}

/// Counts what passes.
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
