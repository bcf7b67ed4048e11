//! A disk that takes its time.
//!
//! The model: written bytes stay in memory, unsynced, at no cost, until a sync asks for those of its file, or more
//! bytes are unsynced than may be. Then they go through the one device in slices of 64 KiB; streams that are at it at
//! once take turns by slice, so that each gets its share, as from a fair I/O scheduler. A sync also waits a fixed
//! time that does not occupy the device. Reads are free: the data is in memory.
//!
//! Waiting is `Runtime::sleep_us` of the runtime that the disk was given: real with a real clock, or an advance of the
//! simulated one.

use braiddb::platform::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;

/// How slow a disk is.
#[derive(Clone, Copy, Debug)]
pub struct DiskSpeed {
    /// Bytes that reach the device in a second.
    pub bytes_per_second: u64,
    /// What each sync, of a file or a directory, takes on top, in microseconds.
    pub sync_us: u64,
    /// How many bytes may be unsynced before writers must wait.
    pub unsynced_bytes_max: u64,
}

const SLICE_LEN: u64 = 64 << 10;

/// The device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) speed: DiskSpeed,
    runtime: Arc<dyn Runtime>,
    /// When the slices that were accepted so far are through.
    busy_until_ns: Mutex<u64>,
}

impl Device {
    pub(crate) fn new(speed: DiskSpeed, runtime: Arc<dyn Runtime>) -> Device {
        Device { speed, runtime, busy_until_ns: Mutex::new(0) }
    }

    /// Waits until so many bytes are through.
    pub(crate) fn transfer(&self, bytes: u64) {
        let mut left = bytes;
        while left > 0 {
            let slice = left.min(SLICE_LEN);
            let nanos = slice.saturating_mul(1_000_000_000) / self.speed.bytes_per_second.max(1);
            let now = self.runtime.monotonic_ns();
            let through = {
                let mut busy_until = self.busy_until_ns.lock();
                *busy_until = (*busy_until).max(now) + nanos;
                *busy_until
            };
            self.runtime.sleep_us((through - now).div_ceil(1000));
            left -= slice;
        }
    }

    /// Waits the fixed time of a sync.
    pub(crate) fn settle(&self) {
        self.runtime.sleep_us(self.speed.sync_us);
    }
}
