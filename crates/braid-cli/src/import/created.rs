//! Trees that a command has created, which are named on standard error: so a mistyped name is noticed.

use std::collections::BTreeSet;

use anyhow::Result;
use braiddb::Db;

use super::progress::IMPORT_TREE;
use crate::{notation::show_name, output::note};

/// The trees that were there before.
pub struct KnownTrees(BTreeSet<String>);

impl KnownTrees {
    /// The trees of the database as they are now.
    pub fn of(db: &Db) -> Result<KnownTrees> {
        Ok(KnownTrees(db.trees()?.into_iter().map(|tree| tree.name).collect()))
    }

    /// Names the trees that have come since.
    pub fn note_new(&self, db: &Db) -> Result<()> {
        let is_new = |name: &String| *name != IMPORT_TREE && !self.0.contains(name);
        let new: Vec<String> =
            db.trees()?.into_iter().map(|tree| tree.name).filter(is_new).map(|name| show_name(&name)).collect();
        match new.as_slice() {
            [] => {}
            [name] => note!("braid: created tree {name}"),
            names => note!("braid: created trees {}", names.join(", ")),
        }
        Ok(())
    }
}
