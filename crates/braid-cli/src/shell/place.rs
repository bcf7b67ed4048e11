//! The state that a command reads: the latest one, a snapshot, or that of the transaction.

use std::{
    ops::Bound,
    sync::atomic::{AtomicBool, Ordering},
    time::SystemTime,
};

use anyhow::Result;
use braiddb::{Db, Key, Snapshot, Transaction, Tree, Value, stats::Explain};

use crate::{
    commands::{KeyRange, NamedTree, plain_tree},
    exit,
};

/// Parts of an exact count; the stop flag is checked between them.
const COUNT_PARTS: usize = 256;

pub type Rows<'a> = Box<dyn DoubleEndedIterator<Item = braiddb::Result<(Key, Value)>> + 'a>;

#[derive(Clone, Copy)]
pub enum View<'a> {
    Latest,
    Snapshot(&'a Snapshot),
    Transaction(&'a Transaction),
}

pub struct Place<'a> {
    pub db: Db,
    pub view: View<'a>,
    pub stop: &'a AtomicBool,
}

impl<'a> Place<'a> {
    pub fn rows(&self, tree: &NamedTree, range: KeyRange) -> Rows<'a> {
        match (self.view, tree) {
            (View::Latest, NamedTree::Plain(tree)) => Box::new(tree.range(range)),
            (View::Latest, NamedTree::Multi(tree)) => Box::new(tree.range(range)),
            (View::Snapshot(snapshot), NamedTree::Plain(tree)) => Box::new(snapshot.tree(tree).range(range)),
            (View::Snapshot(snapshot), NamedTree::Multi(tree)) => Box::new(snapshot.multi_tree(tree).range(range)),
            (View::Transaction(transaction), NamedTree::Plain(tree)) => Box::new(transaction.tree(tree).range(range)),
            (View::Transaction(transaction), NamedTree::Multi(tree)) => {
                Box::new(transaction.multi_tree(tree).range(range))
            }
        }
    }

    /// Returns the values of a key, with their expiry times.
    pub fn values(&self, tree: &NamedTree, key: &[u8]) -> Result<Vec<(Value, Option<SystemTime>)>> {
        if let NamedTree::Plain(tree) = tree {
            let found = match self.view {
                View::Latest => tree.get_with_expiry(key),
                View::Snapshot(snapshot) => snapshot.get_with_expiry(tree, key),
                View::Transaction(transaction) => transaction.get_with_expiry(tree, key),
            };
            return Ok(found?.into_iter().collect());
        }
        let range = (Bound::Included(key.to_vec()), Bound::Included(key.to_vec()));
        self.rows(tree, range).map(|pair| Ok((pair?.1, None))).collect()
    }

    /// Explains the last of `repeat` gets. In a transaction the get is of its snapshot: a key that
    /// the transaction wrote is in its own memory.
    pub fn explain(&self, tree: &NamedTree, (name, key): (&str, &[u8]), repeat: u64) -> Result<Explain> {
        let tree = plain_tree(tree, name)?;
        let snapshot = match self.view {
            View::Latest => None,
            View::Snapshot(snapshot) => Some(snapshot.clone()),
            View::Transaction(transaction) => Some(transaction.snapshot()),
        };
        for _ in 1..repeat {
            snapshot.as_ref().map_or_else(|| tree.get(key), |snapshot| snapshot.get(tree, key))?;
            self.check()?;
        }
        Ok(snapshot.map_or_else(|| tree.explain(key), |snapshot| snapshot.explain(tree, key))?)
    }

    pub fn count(&self, tree: &NamedTree, range: KeyRange) -> Result<u64> {
        if let (NamedTree::Plain(tree), View::Latest | View::Snapshot(_)) = (tree, self.view) {
            return self.count_in_parts(tree, range);
        }
        let mut count = 0;
        for row in self.rows(tree, range) {
            row?;
            self.check()?;
            count += 1;
        }
        Ok(count)
    }

    fn count_in_parts(&self, tree: &Tree, range: KeyRange) -> Result<u64> {
        let snapshot = match self.view {
            View::Snapshot(snapshot) => snapshot.clone(),
            _ => self.db.snapshot(),
        };
        let counted = snapshot.tree(tree);
        let points = tree.split_points(range.clone(), COUNT_PARTS)?;
        let (mut start, mut count) = (range.0, 0);
        for point in points {
            count += counted.count((start, Bound::Excluded(point.clone())))?;
            start = Bound::Included(point);
            self.check()?;
        }
        Ok(count + counted.count((start, range.1))?)
    }

    /// Fails after Ctrl-C.
    pub fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(exit::failure(exit::INTERRUPTED, "interrupted")),
            false => Ok(()),
        }
    }
}
