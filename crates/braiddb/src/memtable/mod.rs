//! The memtable: recent writes, in key order, in memory.

mod ahead;
mod arena;
mod chunk_pool;
mod chunks_ahead;
mod cursor;
mod entry;
mod filter;
mod node;
mod range_tombstones;
mod search;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

pub use ahead::EntryBatch;
pub use chunk_pool::ChunkPool;
pub use chunks_ahead::ChunksAhead;
pub use cursor::{MemtableCursor, MemtableScan};
pub use table::{Memtable, MemtableOptions, MemtableWriter};
