//! The engines behind one interface, each with the settings of its own guide.

#[cfg(feature = "bf-tree")]
mod bf_tree;
#[cfg(feature = "braiddb")]
mod braid;
#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod braid_multi;
mod engine;
#[cfg(feature = "fjall")]
mod fjall;
mod list;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod lmdb_multi;
#[cfg(feature = "mdbx")]
mod mdbx;
#[cfg(all(feature = "braiddb", feature = "lmdb"))]
mod multi;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "surrealkv")]
mod surrealkv;
#[cfg(test)]
mod tests;
#[cfg(feature = "tidesdb")]
mod tidesdb;

#[cfg(feature = "braiddb")]
pub use braid::Braid;
pub use engine::{Access, Engine, Op, Reader, Rows, Setup};
pub use list::{EngineKind, all, by_name};
#[cfg(feature = "lmdb")]
pub use lmdb::Lmdb;
#[cfg(all(feature = "braiddb", feature = "lmdb"))]
pub use {
    braid_multi::BraidMulti,
    lmdb_multi::LmdbMulti,
    multi::{MultiEngine, MultiReader},
};
