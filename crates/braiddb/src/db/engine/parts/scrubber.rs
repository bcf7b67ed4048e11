//! State of the scrubber.

use crate::base::FileNumber;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Scrubber {
    pub(in crate::db) at: Mutex<Place>,
    pub(in crate::db) bytes: AtomicU64,
    pub(in crate::db) damaged: AtomicU64,
    pub(in crate::db) passes: AtomicU64,
    pub(in crate::db) last_pass_us: AtomicU64,
}

#[derive(Debug, Default)]
pub(in crate::db) struct Place {
    /// The next file, or the first one with a higher number.
    pub(in crate::db) number: FileNumber,
    pub(in crate::db) unit: usize,
    /// No read before this time.
    pub(in crate::db) not_before_ns: u64,
}

/// Activity of the scrubber since the open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScrubStats {
    /// Bytes read.
    pub bytes: u64,
    /// Damaged units found, counted again in each pass.
    pub damaged_units: u64,
    /// Passes finished.
    pub passes: u64,
    /// End of the last pass, in microseconds since 1970; 0 before the first.
    pub last_pass_us: u64,
}

impl Scrubber {
    pub fn stats(&self) -> ScrubStats {
        ScrubStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            damaged_units: self.damaged.load(Ordering::Relaxed),
            passes: self.passes.load(Ordering::Relaxed),
            last_pass_us: self.last_pass_us.load(Ordering::Relaxed),
        }
    }
}
