//! Writes of a tree in any view.

use crate::{
    args::Range,
    errors::{Refusal, raise},
    tree::RawTree,
    view::{Origin, View, ViewedTree},
};
use braiddb::{
    Db, Durability, Error, Result, Tree,
    shared::{SharedDb, SharedTree},
    views::TransactionTree,
};
use pyo3::prelude::*;
use std::{
    borrow::Cow,
    time::{Duration, SystemTime},
};

type Row<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// When a row expires.
#[derive(Clone, Copy)]
pub enum Expiry {
    OfTree,
    After(Duration),
    At(SystemTime),
}

macro_rules! commit {
    ($batch:ident, $durability:ident) => {
        match $durability {
            Some(durability) => $batch.commit_with(durability),
            None => $batch.commit(),
        }
        .map(drop)
    };
}

/// Adds rows to a batch of either kind of database and commits it.
macro_rules! commit_rows {
    ($batch:expr, $tree:ident, $rows:ident, $expiry:ident, $durability:ident) => {{
        let mut batch = $batch;
        for (key, value) in $rows {
            match $expiry {
                Expiry::OfTree => _ = batch.put($tree, key, value),
                Expiry::After(ttl) => _ = batch.put_with_ttl($tree, key, value, ttl),
                Expiry::At(time) => _ = batch.put_until($tree, key, value, time),
            }
        }
        commit!(batch, $durability)
    }};
}

/// Adds deletes to a batch of either kind of database and commits it.
macro_rules! commit_deletes {
    ($batch:expr, $tree:ident, $keys:ident, $durability:ident) => {{
        let mut batch = $batch;
        $keys.iter().for_each(|key| _ = batch.delete($tree, key));
        commit!(batch, $durability)
    }};
}

impl RawTree {
    /// Runs a write of this view, detached: of a tree, a shared tree, or a tree in a transaction.
    pub fn write<R: Send>(
        &self,
        py: Python<'_>,
        own: impl FnOnce(&Tree) -> Result<R> + Send,
        shared: impl FnOnce(&SharedDb, &SharedTree) -> Result<R> + Send,
        in_transaction: impl FnOnce(&TransactionTree<'_, '_>) -> Result<R> + Send,
    ) -> PyResult<R> {
        let ViewedTree { origin, view } = self.viewed()?;
        match view {
            View::Latest => py.detach(|| match origin {
                Origin::Own(tree) => own(tree),
                Origin::Shared(db, tree) => shared(db, tree),
            }),
            View::Snapshot(..) => Err(Error::abort(Refusal::Snapshot)),
            View::Transaction(cell) => {
                let cell = cell.get()?;
                py.detach(|| {
                    cell.write(|transaction| {
                        let tree = origin.in_transaction(transaction)?;
                        in_transaction(&transaction.tree(&tree))
                    })
                })
            }
        }
        .map_err(raise)
    }

    pub fn put_rows(
        &self,
        py: Python<'_>,
        rows: &[Row<'_>],
        expiry: Expiry,
        durability: Option<Durability>,
    ) -> PyResult<()> {
        let in_transaction = |tree: &TransactionTree<'_, '_>| {
            rows.iter().try_for_each(|(key, value)| match expiry {
                Expiry::OfTree => tree.put(key, value),
                Expiry::After(ttl) => tree.put_with_ttl(key, value, ttl),
                Expiry::At(time) => tree.put_until(key, value, time),
            })
        };
        self.write(
            py,
            |tree| commit_rows!(self.own_db()?.batch(), tree, rows, expiry, durability),
            |db, tree| commit_rows!(db.batch(), tree, rows, expiry, durability),
            in_transaction,
        )
    }

    pub fn delete_keys(&self, py: Python<'_>, range: &Range) -> PyResult<()> {
        self.write(
            py,
            |tree| tree.delete_range(range).map(drop),
            |_, tree| tree.delete_range(range).map(drop),
            |tree| tree.delete_range(range),
        )
    }

    pub fn delete_all(&self, py: Python<'_>, keys: &[Cow<'_, [u8]>], durability: Option<Durability>) -> PyResult<()> {
        self.write(
            py,
            |tree| commit_deletes!(self.own_db()?.batch(), tree, keys, durability),
            |db, tree| commit_deletes!(db.batch(), tree, keys, durability),
            |tree| keys.iter().try_for_each(|key| tree.delete(key)),
        )
    }

    /// Returns the database of a tree that is not shared.
    fn own_db(&self) -> Result<&Db> {
        self.shared().db("a batch").map_err(|_| Error::Closed)
    }
}
