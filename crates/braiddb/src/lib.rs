//! BraidDB: an embedded, ordered, transactional key-value store.
//!
//! It keeps data in immutable sorted runs, and merges the runs of each key range into one sorted
//! view. A point read costs about one key comparison and a scan almost none per key, at low write
//! amplification.
//!
//! ```
//! # fn main() -> braiddb::Result<()> {
//! use braiddb::Db;
//!
//! let db = Db::in_memory()?; // or Db::open("music.db")?
//! let albums = db.tree("albums")?;
//! albums.put(b"1", b"Ten")?;
//!
//! let mut batch = db.batch();
//! batch.put(&albums, b"2", b"Vs.").put(&albums, b"3", b"Vitalogy");
//! batch.commit()?;
//!
//! let before = db.snapshot();
//! albums.delete(b"1")?;
//! assert_eq!(before.get(&albums, b"1")?.as_deref(), Some(&b"Ten"[..]));
//! for pair in albums.range("2"..).rev() {
//!     let (key, value) = pair?;
//!     println!("{key:?} {value:?}");
//! }
//! # Ok(())
//! # }
//! ```

pub mod backup;
mod base;
pub mod bulk;
mod cache;
mod codec;
mod commit;
mod compaction;
mod db;
pub mod dump;
pub mod events;
#[cfg(doctest)]
mod guide;
mod memtable;
pub mod merge;
pub mod options;
pub mod platform;
mod read;
pub mod salvage;
pub mod shared;
pub mod stats;
pub mod streams;
mod table;
mod txn;
pub mod verify;
mod version;
mod view;
pub mod views;
mod wal;
pub mod watch;

// At most 30 names: what most programs use. The rest is in the modules.
pub use base::{Error, NoSpace, Result, SequenceNumber};
pub use codec::{Compression, MergeFunction};
pub use db::inspect;
pub use db::{
    Batch, Commit, Cursor, Db, Durability, ETag, Follower, Iter, Key, KeyRange, MultiTree, Read, SharedRuntime,
    SharedRuntimeBuilder, Snapshot, Transaction, Tree, TreeCodec, TreeOptions, Update, Value, Version,
};
#[doc(inline)]
pub use options::Builder;
pub use txn::Savepoint;
