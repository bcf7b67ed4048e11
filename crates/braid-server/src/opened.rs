//! Trees of either kind.

use braiddb::{Db, Error, MultiTree, Tree};

/// A tree by its kind.
#[derive(Clone, Debug)]
pub enum Opened {
    Single(Tree),
    /// With many values per key.
    Multi(MultiTree),
}

/// Opens a tree of either kind: a lookup in memory.
pub fn open(db: &Db, name: &str) -> braiddb::Result<Opened> {
    match db.open_tree(name) {
        // It has many values per key, or the name is refused again.
        Err(Error::InvalidArgument(_)) => db.open_multi_tree(name).map(Opened::Multi),
        tree => tree.map(Opened::Single),
    }
}
