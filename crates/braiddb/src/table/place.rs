//! Reading blocks where their file is mapped.
//!
//! A block that is not compressed is read in place, where its file can be mapped: the system has it in memory as long as there
//! is room, and a copy of it would cost time and take the room of others. The rules:
//!
//! - A block is **checked** before it is read in place: read in the usual way, checksum and all. So a disk that cannot read it
//!   gives an error and not a signal, and damage is found as it always was.
//! - What was checked is checked again when it is read more than [`CHECKED_FOR_NS`] later. The system may have dropped the
//!   block meanwhile and may read it from the disk again, and there is no way to be told.

use super::TableContext;
use crate::{
    cache::{CheckTime, MappedFile},
    platform::{File, Runtime},
};
use std::sync::{Arc, OnceLock};

/// For how long a checked block is read in place, at most.
pub(super) const CHECKED_FOR_NS: u64 = 32_000_000_000;

/// The map of a file, made when it is first wanted.
#[derive(Debug)]
pub(super) struct Place {
    file: OnceLock<Option<MappedFile>>,
    runtime: Arc<dyn Runtime>,
    is_allowed: bool,
}

impl Place {
    /// No map yet.
    pub fn new(ctx: &TableContext) -> Place {
        Place { file: OnceLock::new(), runtime: Arc::clone(&ctx.runtime), is_allowed: ctx.in_place }
    }

    /// The map of the file's first `len` bytes; `None` if there is none to be had.
    #[inline]
    pub fn mapped(&self, file: &dyn File, len: u64) -> Option<&MappedFile> {
        match self.file.get() {
            Some(mapped) => mapped.as_ref(),
            None => self.map(file, len),
        }
    }

    #[cold]
    fn map(&self, file: &dyn File, len: u64) -> Option<&MappedFile> {
        // A system that refuses it is one without: what is not mapped is cached.
        let map = || file.map_for_reading(len).ok().flatten().map(MappedFile::new);
        self.file.get_or_init(|| if self.is_allowed { map() } else { None }).as_ref()
    }

    /// The map, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&MappedFile> {
        self.file.get()?.as_ref()
    }

    /// The present span of time: what was checked in another is to be checked again.
    #[inline]
    pub fn now(&self) -> CheckTime {
        CheckTime::new(self.runtime.monotonic_coarse_ns() / CHECKED_FOR_NS)
    }
}
