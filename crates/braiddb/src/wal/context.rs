//! Environment, options and counters of a log.

use super::{
    format::SEGMENT_HEADER_LEN,
    record::{RECORD_HEADER_LEN_MAX, SEAL_LEN_MAX},
};
use crate::{
    base::{Error, FileNumber, Result},
    platform::{Runtime, Vfs},
};
use std::{fmt, path::PathBuf, sync::Arc};

#[derive(Clone)]
pub struct WalContext {
    pub vfs: Arc<dyn Vfs>,
    pub dir: PathBuf,
    pub runtime: Arc<dyn Runtime>,
    /// Must never repeat a number.
    pub next_file_number: Arc<dyn Fn() -> FileNumber + Send + Sync>,
    /// Called before each sync, after its end was determined: makes everything durable that earlier
    /// records refer to. An error counts as a failed sync.
    pub pre_sync: Option<Arc<dyn Fn() -> Result<()> + Send + Sync>>,
}

impl fmt::Debug for WalContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalContext").field("dir", &self.dir).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Bytes of a segment. The first ones are shorter; a large group gets a longer one.
    pub segment_len: u64,
    /// Maximum released segments kept for reuse, in full-length segments.
    pub spares_max: usize,
    /// Minimum bytes of a payload that is compressed.
    pub compress_at_len: usize,
}

impl Default for WalOptions {
    fn default() -> Self {
        WalOptions { segment_len: 16 << 20, spares_max: 2, compress_at_len: 4 << 10 }
    }
}

impl WalOptions {
    pub fn check(&self) -> Result<()> {
        let least = SEGMENT_HEADER_LEN + RECORD_HEADER_LEN_MAX as u64 + SEAL_LEN_MAX;
        if self.segment_len < least || self.segment_len > 1 << 40 {
            return Err(Error::InvalidArgument(format!(
                "a log segment has {} bytes, and must have from {least} to 2^40",
                self.segment_len
            )));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    pub records: u64,
    pub bytes_written: u64,
    pub payload_bytes: u64,
    pub syncs: u64,
    pub segments_created: u64,
    pub segments_recycled: u64,
}
