//! The model of a slow disk.
//!
//! Writes are free until a sync of their file, or until too many bytes are unsynced. The bytes then
//! pass one device in slices of 64 KiB; concurrent streams take turns. A sync also waits a fixed
//! time that does not occupy the device. Reads are free.

use braiddb::platform::Runtime;
use parking_lot::Mutex;
use std::sync::Arc;

/// The speed of a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskSpeed {
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// Extra microseconds of each sync.
    pub sync_us: u64,
    /// Unsynced bytes above which writers wait.
    pub unsynced_bytes_max: u64,
}

const SLICE_LEN: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) speed: DiskSpeed,
    runtime: Arc<dyn Runtime>,
    /// Time when all accepted slices are done.
    busy_until_ns: Mutex<u64>,
}

impl Device {
    pub(crate) fn new(speed: DiskSpeed, runtime: Arc<dyn Runtime>) -> Device {
        Device { speed, runtime, busy_until_ns: Mutex::new(0) }
    }

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

    pub(crate) fn settle(&self) {
        self.runtime.sleep_us(self.speed.sync_us);
    }
}
