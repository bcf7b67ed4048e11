//! The engines of this binary.

use super::{Engine, Setup};
use anyhow::{Context, Result};

pub struct EngineKind {
    pub name: &'static str,
    /// Name in Cargo.lock, to find the version.
    pub package: &'static str,
    pub open: fn(Setup<'_>) -> Result<Box<dyn Engine>>,
}

/// Returns the engines in column order.
pub fn all() -> Vec<EngineKind> {
    vec![
        #[cfg(feature = "braiddb")]
        EngineKind {
            name: "braiddb",
            package: "braiddb",
            open: |setup| Ok(Box::new(super::braid::Braid::open(setup)?)),
        },
        #[cfg(feature = "braiddb")]
        EngineKind {
            name: "braiddb-iter",
            package: "braiddb",
            open: |setup| Ok(Box::new(super::braid::Braid::open_natural(setup)?)),
        },
        #[cfg(feature = "rocksdb")]
        EngineKind {
            name: "rocksdb",
            package: "librocksdb-sys",
            open: |setup| Ok(Box::new(super::rocksdb::Rocks::open(setup)?)),
        },
        #[cfg(feature = "lmdb")]
        EngineKind {
            name: "lmdb",
            package: "lmdb-master-sys",
            open: |setup| Ok(Box::new(super::lmdb::Lmdb::open(setup)?)),
        },
        #[cfg(feature = "mdbx")]
        EngineKind {
            name: "libmdbx",
            package: "mdbx-sys",
            open: |setup| Ok(Box::new(super::mdbx::Mdbx::open(setup)?)),
        },
        #[cfg(feature = "redb")]
        EngineKind { name: "redb", package: "redb", open: |setup| Ok(Box::new(super::redb::Redb::open(setup)?)) },
        #[cfg(feature = "fjall")]
        EngineKind { name: "fjall", package: "fjall", open: |setup| Ok(Box::new(super::fjall::Fjall::open(setup)?)) },
        #[cfg(feature = "sqlite")]
        EngineKind {
            name: "sqlite",
            package: "libsqlite3-sys",
            open: |setup| Ok(Box::new(super::sqlite::Sqlite::open(setup)?)),
        },
        #[cfg(feature = "sled")]
        EngineKind { name: "sled", package: "sled", open: |setup| Ok(Box::new(super::sled::Sled::open(setup)?)) },
        #[cfg(feature = "surrealkv")]
        EngineKind {
            name: "surrealkv",
            package: "surrealkv",
            open: |setup| Ok(Box::new(super::surrealkv::Surreal::open(setup)?)),
        },
        #[cfg(feature = "tidesdb")]
        EngineKind {
            name: "tidesdb",
            package: "tidesdb",
            open: |setup| Ok(Box::new(super::tidesdb::Tides::open(setup)?)),
        },
        #[cfg(feature = "bf-tree")]
        EngineKind {
            name: "bf-tree",
            package: "bf-tree",
            open: |setup| Ok(Box::new(super::bf_tree::Bf::open(setup)?)),
        },
    ]
}

pub fn by_name(name: &str) -> Result<EngineKind> {
    let found = all().into_iter().find(|kind| kind.name == name);
    found.with_context(|| format!("no engine {name:?} in this binary"))
}
