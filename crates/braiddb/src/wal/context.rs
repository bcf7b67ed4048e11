//! What a log is given, and what it tells of itself.

use super::{
    format::SEGMENT_HEADER_LEN,
    record::{RECORD_HEADER_LEN_MAX, SEAL_LEN_MAX},
};
use crate::{
    base::{Error, FileNumber, Result},
    platform::{Runtime, Vfs},
};
use std::{fmt, path::PathBuf, sync::Arc};

/// The world a log lives in.
#[derive(Clone)]
pub struct WalContext {
    /// The file system.
    pub vfs: Arc<dyn Vfs>,
    /// The directory of the segments.
    pub dir: PathBuf,
    /// Where file ids come from.
    pub runtime: Arc<dyn Runtime>,
    /// Gives the number of each new segment; must never repeat one.
    pub next_file_number: Arc<dyn Fn() -> FileNumber + Send + Sync>,
    /// Called before each sync of the log, after the position up to which it will reach was taken: makes durable
    /// what the records before that position refer to. An error counts as a failed sync.
    pub pre_sync: Option<Arc<dyn Fn() -> Result<()> + Send + Sync>>,
}

impl fmt::Debug for WalContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalContext").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Sizes of a log.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// The length of a segment in bytes; the first ones are shorter, and a group that does not fit gets a longer one.
    pub segment_len: u64,
    /// The most released segments that are kept to be used again; of shorter ones, as many as take no more space.
    pub spares_max: usize,
    /// Payloads of at least this many bytes are compressed where that pays.
    pub compress_at_len: usize,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions { segment_len: 16 << 20, spares_max: 2, compress_at_len: 4 << 10 }
    }
}

impl WalOptions {
    /// Refuses sizes that no log can work with.
    pub fn check(&self) -> Result<()> {
        let least = SEGMENT_HEADER_LEN + RECORD_HEADER_LEN_MAX as u64 + SEAL_LEN_MAX;
        if self.segment_len < least || self.segment_len > 1 << 40 {
            return Err(Error::InvalidArgument(format!(
                "a log segment of {} bytes: give from {least} to 2^40",
                self.segment_len
            )));
        }
        Ok(())
    }
}

/// Counts since the log was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Records appended, seals and notes included.
    pub records: u64,
    /// Bytes of all records and segment headers written.
    pub bytes_written: u64,
    /// Bytes of payload before compression.
    pub payload_bytes: u64,
    /// Group syncs done; each made all earlier appends durable.
    pub syncs: u64,
    /// Segments made as new files.
    pub segments_created: u64,
    /// Segments made of spares.
    pub segments_recycled: u64,
}
