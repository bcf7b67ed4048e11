//! The engines, each behind the same interface, each with the settings its own guide advises.

#[cfg(feature = "braiddb")]
mod braid;
mod engine;
#[cfg(feature = "fjall")]
mod fjall;
mod list;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "mdbx")]
mod mdbx;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "sqlite")]
mod sqlite;

#[cfg(feature = "braiddb")]
pub use braid::Braid;
pub use engine::{Access, Engine, Op, Reader, Rows, Setup};
pub use list::{EngineKind, all, by_name};
#[cfg(feature = "lmdb")]
pub use lmdb::Lmdb;
