//! Sorted run files, and blob files for large values.
//!
//! `format.rs` has the layout of a run file and the framing of its units, `block.rs` the data block, `key_block.rs`
//! the keys that stand apart, `tail.rs` index and footer, `meta.rs` what the manifest knows of a run. `writer.rs`
//! writes a run once, `run.rs` reads it, `scan.rs` streams it, `verify.rs` checks it whole.

pub mod blob;
mod block;
mod format;
mod key_block;
mod meta;
mod run;
mod scan;
mod tail;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use meta::{BlobUse, RunMeta};
pub use run::{PinnedBlock, Run};
pub use scan::{KeyScan, RunScan};
pub use writer::{RunOptions, RunWriter};

use crate::{cache::BlockCache, platform::Vfs};
use std::sync::Arc;

/// What tables need of the world.
#[derive(Clone, Debug)]
pub struct TableContext {
    /// Files.
    pub vfs: Arc<dyn Vfs>,
    /// The block cache.
    pub cache: Arc<BlockCache>,
}

/// Where an entry stands in a run. Positions of a run are in the order of its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The block.
    pub block: u16,
    /// The entry in the block.
    pub slot: u16,
}
