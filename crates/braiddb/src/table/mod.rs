//! Sorted run files, and blob files for large values.
//!
//! Formats: `format.rs`, `block.rs`, `key_block.rs`, `tail.rs`. Point reads: `run.rs`, with
//! `place.rs` for mapped files. `damage.rs` lists damage, `damaged.rs` reads the intact blocks.

mod ahead;
pub mod blob;
mod block;
mod context;
mod damage;
mod damaged;
mod direct_offset;
mod expiries;
mod format;
mod index_trigger;
mod key_block;
mod key_filter;
mod meta;
mod place;
mod recent_writes;
mod run;
mod scan;
mod sequence;
mod tail;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_place;
mod unbuffered;
mod verify;
mod writer;

pub use block::{MAX_BLOCK_BYTES, Rows};
pub use context::{Position, TableContext};
pub use damage::{DamagedUnit, walk_run_units};
pub use damaged::{Damage, DamagedRun, Opened, Step};
pub use direct_offset::{EntryOffset, OFFSET_BITS};
pub use expiries::{Expiries, ExpiryCounter};
pub use index_trigger::IndexTrigger;
pub use key_block::KeyBlocks;
pub use key_filter::{KeyFilter, NewFilters};
#[cfg(test)]
pub use meta::BlobUse;
pub use meta::RunMeta;
pub use place::Moment;
pub use recent_writes::RecentWrites;
pub use run::{PinnedBlock, Run};
pub use scan::{KeyScan, RunScan};
pub use unbuffered::UnbufferedTables;
pub use writer::{MIN_BLOCK_BYTES, RunOptions, RunWriter};
