//! Options of a target.

use braiddb::{
    Error, Result,
    platform::{Runtime, SystemRuntime},
};
use std::{sync::Arc, time::Duration};

/// S3 accepts no smaller part except the last.
pub const PART_BYTES_MIN: usize = if cfg!(test) { 1 << 10 } else { 5 << 20 };

/// Options of an [`ObjectStoreTarget`](crate::ObjectStoreTarget).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetOptions {
    /// Bytes of a part of a multipart upload, and of a ranged read. A transfer has up to
    /// [`parallel`](Self::parallel) of them in memory. S3 takes 10,000 parts, so this also limits
    /// the length of an object: 8 MiB, the default, allow 78 GiB. From 5 MiB to 1 GiB.
    pub part_bytes: usize,
    /// Maximum requests of a transfer at the same time; 4 by default, from 1 to 64.
    pub parallel: usize,
    /// Maximum duration of an attempt, 30 s by default.
    pub attempt_time: Duration,
    /// Maximum duration of a request with all attempts, 2 minutes by default. After it the call
    /// fails.
    pub request_time: Duration,
    /// Time until an unrenewed lock expires, so how long others wait after a crash. 60 s by
    /// default, at least 1 s. The holder renews it three times in this period.
    pub lease_time: Duration,
    /// Whether the store has conditional writes (`If-Match`, `If-None-Match`), which the lock and
    /// the publication of a backup need. True by default. Without them the caller must ensure that
    /// one process at a time writes to the target.
    pub conditional_writes: bool,
    /// Clock and randomness.
    pub runtime: Arc<dyn Runtime>,
}

impl Default for TargetOptions {
    fn default() -> TargetOptions {
        TargetOptions {
            part_bytes: 8 << 20,
            parallel: 4,
            attempt_time: Duration::from_secs(30),
            request_time: Duration::from_secs(120),
            lease_time: Duration::from_secs(60),
            conditional_writes: true,
            runtime: Arc::new(SystemRuntime::new()),
        }
    }
}

impl TargetOptions {
    /// Returns the default options.
    pub fn new() -> TargetOptions {
        TargetOptions::default()
    }

    /// Sets the bytes of a part.
    pub fn part_bytes(mut self, bytes: usize) -> TargetOptions {
        self.part_bytes = bytes;
        self
    }

    /// Sets the maximum requests of a transfer at the same time.
    pub fn parallel(mut self, requests: usize) -> TargetOptions {
        self.parallel = requests;
        self
    }

    /// Sets the maximum duration of an attempt, and of a request with all attempts.
    pub fn request_time(mut self, attempt: Duration, request: Duration) -> TargetOptions {
        (self.attempt_time, self.request_time) = (attempt, request);
        self
    }

    /// Sets the time after which an unrenewed lock is lost.
    pub fn lease_time(mut self, time: Duration) -> TargetOptions {
        self.lease_time = time;
        self
    }

    /// Sets whether the store has conditional writes.
    pub fn conditional_writes(mut self, conditional_writes: bool) -> TargetOptions {
        self.conditional_writes = conditional_writes;
        self
    }

    /// Replaces clock and randomness.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> TargetOptions {
        self.runtime = runtime;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::InvalidArgument(text));
        if !(PART_BYTES_MIN..=1 << 30).contains(&self.part_bytes) {
            return refuse(format!("part_bytes is {}: it must be from 5 MiB to 1 GiB", self.part_bytes));
        }
        if !(1..=64).contains(&self.parallel) {
            return refuse(format!("parallel is {}: it must be from 1 to 64", self.parallel));
        }
        if self.lease_time < Duration::from_secs(1) {
            return refuse(format!("lease_time is {:?}: it must be at least 1 s", self.lease_time));
        }
        Ok(())
    }
}
