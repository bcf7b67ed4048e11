//! A file or standard input, decompressed.
//!
//! What it is compressed with is recognised by its first bytes, not by its name. All three forms may be several streams
//! one after the other. The identity of an input, by which a resumed import knows it again, is its length (unless it
//! comes from standard input) and a hash of its first MiB, both as they lie on disk.

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

use super::folder::FolderArchive;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Bzip2,
    Zstd,
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
        let mut reader: Box<dyn Read + Send> = match compression {
            Compression::None => Box::new(buffered),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered)),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(buffered)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(buffered)?),
        };
        let skipped = io::copy(&mut reader.by_ref().take(offset), &mut io::sink()).map_err(unreadable)?;
        if skipped < offset {
            return Err(failure(INPUT, format!("the input ends at byte {skipped}, before byte {offset}")));
        }
        Ok(reader)
    }
}

impl Source {
    /// Whether the input begins with this text, which is short, after decompression.
    pub fn begins_with(&self, text: &[u8]) -> bool {
        let head = self.head.as_slice();
        let mut reader: Box<dyn Read + '_> = match self.compression {
            Compression::None => Box::new(head),
            Compression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(head)),
            Compression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(head)),
            Compression::Zstd => match zstd::stream::read::Decoder::new(head) {
                Ok(decoder) => Box::new(decoder),
                Err(_) => return false,
            },
        };
        let mut beginning = vec![0; text.len()];
        reader.read_exact(&mut beginning).is_ok() && beginning == text
    }
}

/// An error of reading an input: what the system did not say itself is the input's own fault.
pub fn unreadable(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(_) => anyhow::Error::new(error).context("cannot read the input"),
        None => failure(INPUT, format!("the input is damaged: {error}")),
    }
}

fn recognise(head: &[u8]) -> Result<Compression> {
    const BZIP2_BLOCK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
    const BZIP2_END: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
    let refused = |what: &str| Err(failure(INPUT, format!("the input is {what}: unpack it first, or pipe it in")));
    let bzip2 = head.starts_with(b"BZh") && head.get(4..10).is_some_and(|it| it == BZIP2_BLOCK || it == BZIP2_END);
    let zstd_skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18];
    match head {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        _ if bzip2 => Ok(Compression::Bzip2),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Compression::Zstd),
        _ if zstd_skippable => Ok(Compression::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => refused("xz-compressed"),
        [b'P', b'K', 3, 4, ..] => refused("a zip archive"),
        [b'7', b'z', 0xbc, 0xaf, ..] => refused("a 7z archive"),
        _ => Ok(Compression::None),
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
