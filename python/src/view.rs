//! Trees in the states that a handle can read: latest, of a snapshot, of a transaction.

use crate::{
    db::Engine,
    errors::{self, raise},
    handle::Handle,
    transaction::TransactionCell,
};
use braiddb::{
    Db, Error, Result, Snapshot, Transaction, Tree, TreeOptions,
    shared::{SharedDb, SharedTree},
    views::SnapshotTree,
};
use pyo3::prelude::*;
use std::{borrow::Cow, sync::Arc};

/// A tree of a database, in no state.
#[derive(Clone)]
pub enum Origin {
    Own(Tree),
    Shared(SharedDb, SharedTree),
}

impl Origin {
    /// Returns the handle for reads of the latest state.
    pub fn latest(&self) -> Result<Cow<'_, Tree>> {
        match self {
            Origin::Own(tree) => Ok(Cow::Borrowed(tree)),
            Origin::Shared(db, tree) => Ok(Cow::Owned(tree.in_state(&db.state()?)?)),
        }
    }

    /// Returns the handle for a state of this database.
    pub fn in_state(&self, state: &Db) -> Result<Tree> {
        match self {
            Origin::Own(tree) => Ok(tree.clone()),
            Origin::Shared(_, tree) => tree.in_state(state),
        }
    }

    /// Returns the handle for a transaction of this database.
    pub fn in_transaction(&self, transaction: &Transaction) -> Result<Cow<'_, Tree>> {
        match self {
            Origin::Own(tree) => Ok(Cow::Borrowed(tree)),
            Origin::Shared(_, tree) => match tree.in_transaction(transaction) {
                // A repeated transaction finds it.
                Err(error) if error.is_not_found() => {
                    let name = tree.name();
                    Err(Error::conflict(format!("the tree {name:?} is not in the state that the transaction reads")))
                }
                found => found.map(Cow::Owned),
            },
        }
    }
}

pub enum View {
    Latest,
    Snapshot(Snapshot, Tree, SnapshotTree),
    Transaction(Arc<Handle<TransactionCell>>),
}

pub struct ViewedTree {
    pub origin: Origin,
    pub view: View,
}

/// How to open a tree by name.
pub struct Opening<'a> {
    pub name: &'a str,
    pub create: bool,
    /// Gives a tree without codecs the codec of `options`, even if it has records.
    pub declare: bool,
    pub options: TreeOptions,
}

impl Opening<'_> {
    pub fn open(&self, py: Python<'_>, engine: &Engine) -> PyResult<Origin> {
        match engine {
            Engine::Own(db) => py.detach(|| self.open_own(db)).map(Origin::Own).map_err(raise),
            Engine::Shared(db) => {
                let tree = py.detach(|| self.open_shared(db)).map_err(raise)?;
                match tree {
                    Some(tree) => Ok(Origin::Shared(db.clone(), tree)),
                    None => Err(errors::unsupported(format!(
                        "the tree {:?} has no codecs, and a shared database cannot add them: open the tree once \
                         without shared=True",
                        self.name
                    ))),
                }
            }
        }
    }

    fn open_own(&self, db: &Db) -> Result<Tree> {
        let &Opening { name, create, declare, options } = self;
        let tree = match db.open_tree(name) {
            Err(error) if error.is_not_found() && create => db.tree_with(name, options)?,
            opened => opened?,
        };
        let stored = tree.options();
        if let Some(codec) = options.codec
            && stored.codec.is_none()
            && (declare || tree.is_empty()?)
        {
            tree.set_options(stored.codec(codec))?;
        }
        let has_options = options != TreeOptions::default();
        if has_options { db.tree_with(name, with_stored(options, tree.options())) } else { Ok(tree) }
    }

    /// Returns None if the tree lacks the codecs.
    fn open_shared(&self, db: &SharedDb) -> Result<Option<SharedTree>> {
        let &Opening { name, create, options, .. } = self;
        let tree = match db.open_tree(name) {
            Err(error) if error.is_not_found() && create => db.tree_with(name, options)?,
            opened => opened?,
        };
        let stored = tree.in_state(&db.state()?)?.options();
        if options.codec.is_some() && stored.codec.is_none() {
            return Ok(None);
        }
        let has_options = options != TreeOptions::default();
        Ok(Some(if has_options { db.tree_with(name, with_stored(options, stored))? } else { tree }))
    }
}

/// Options without a value keep the stored ones.
fn with_stored(options: TreeOptions, stored: TreeOptions) -> TreeOptions {
    let mut both = options;
    both.compression = options.compression.or(stored.compression);
    both.blob_threshold = options.blob_threshold.or(stored.blob_threshold);
    both.ttl = options.ttl.or(stored.ttl);
    both
}
