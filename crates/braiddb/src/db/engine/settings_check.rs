//! Ranges of options, checked at the open before anything is created.

use super::settings::{MEMORY_MAX, Settings};
use crate::{
    base::{Error, Result},
    table::{MAX_BLOCK_BYTES, MIN_BLOCK_BYTES},
};
use std::fmt::Display;

/// Minimum memory of a database, in bytes: below the smallest memtable and a cache.
pub const MEMORY_MIN: usize = 64 << 10;

/// Maximum merge threads. More than the processors are useless, and may fail to start.
pub const BACKGROUND_THREADS_MAX: usize = 1024;

const MEMTABLE_BYTES_MIN: usize = 1 << 10;
/// 1 TiB; on 32-bit systems no limit but their address space.
const MEMTABLE_BYTES_MAX: usize = if usize::BITS < 64 { usize::MAX } else { 1 << (40 % usize::BITS) };
const PARTITION_BYTES_MIN: u64 = 4 << 10;
const LOOSE_RUNS_MIN: usize = 2;
const LOOSE_RUNS_MAX: usize = 1 << 10;
const DEAD_PERCENT_MIN: u64 = 5;
const DEAD_PERCENT_MAX: u64 = 40;
const LOG_SEGMENT_BYTES_MIN: u64 = 1 << 10;
const LOG_SEGMENT_BYTES_MAX: u64 = 1 << 40;
/// Minimum budget of open files. This many threads can read at once.
pub const OPEN_FILES_MIN: usize = 4;

pub fn check_range<N: PartialOrd + Display + Copy>(name: &str, value: N, least: N, most: N) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!("{name} is {value}: choose from {least} to {most}")))
}

impl Settings {
    pub fn check(&self) -> Result<()> {
        self.compression.check()?;
        if self.shared.is_none() {
            check_range("memory", self.memory, MEMORY_MIN, MEMORY_MAX)?;
            check_range("background_threads", self.background_threads, 0, BACKGROUND_THREADS_MAX)?;
        }
        if let Some(bytes) = self.memtable_bytes {
            check_range("memtable_bytes", bytes, MEMTABLE_BYTES_MIN, MEMTABLE_BYTES_MAX)?;
        }
        if let Some(bytes) = self.partition_bytes {
            check_range("partition_bytes", bytes, PARTITION_BYTES_MIN, u64::MAX)?;
        }
        check_range("unindexed_runs", self.loose_runs, LOOSE_RUNS_MIN, LOOSE_RUNS_MAX)?;
        if let Some(percent) = self.dead_percent {
            check_range("garbage_percent", percent, DEAD_PERCENT_MIN, DEAD_PERCENT_MAX)?;
        }
        check_range("log_segment_bytes", self.log_segment_bytes, LOG_SEGMENT_BYTES_MIN, LOG_SEGMENT_BYTES_MAX)?;
        check_range("block_bytes", self.block_bytes, MIN_BLOCK_BYTES, MAX_BLOCK_BYTES)?;
        check_range("blob_file_bytes", self.blob_file_bytes, 1, u64::MAX)?;
        if let Some(files) = self.open_files_max {
            check_range("open_files_max", files, OPEN_FILES_MIN, usize::MAX)?;
        }
        check_range("reader_age_max in nanoseconds", self.reader_age_max_ns, 1, u64::MAX)
    }
}
