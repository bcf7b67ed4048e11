//! Where a tree handle reads and writes: the newest state, a snapshot, or a transaction.

use crate::{
    boundary::{Failure, Outcome},
    code::braid_code::*,
};
use braiddb::{MultiTree, Snapshot, Transaction, Tree};
use std::sync::{Arc, Mutex, PoisonError};

/// A transaction, until its end.
#[derive(Debug)]
pub(crate) struct TransactionCell {
    open: Mutex<Option<Transaction>>,
}

impl TransactionCell {
    pub(crate) fn new(transaction: Transaction) -> Arc<TransactionCell> {
        Arc::new(TransactionCell { open: Mutex::new(Some(transaction)) })
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&Transaction) -> Outcome<R>) -> Outcome<R> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        work(open.as_ref().ok_or_else(ended)?)
    }

    /// Ends it: every later use fails.
    pub(crate) fn take(&self) -> Outcome<Transaction> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(ended)
    }
}

fn ended() -> Failure {
    let message = "the transaction was committed or rolled back: begin another one".to_owned();
    Failure { code: BRAID_TRANSACTION_ENDED, message }
}

#[derive(Clone)]
pub(crate) enum Place {
    Latest,
    Snapshot(Snapshot),
    Transaction(Arc<TransactionCell>),
}

#[derive(Clone)]
pub(crate) enum AnyTree {
    Plain(Tree),
    Multi(MultiTree),
}

impl AnyTree {
    pub(crate) fn plain(&self) -> Outcome<&Tree> {
        match self {
            AnyTree::Plain(tree) => Ok(tree),
            AnyTree::Multi(tree) => {
                let message =
                    format!("the tree {:?} keeps many values per key: use the functions for pairs", tree.name());
                Err(Failure::argument(message))
            }
        }
    }

    pub(crate) fn multi(&self) -> Outcome<&MultiTree> {
        match self {
            AnyTree::Multi(tree) => Ok(tree),
            AnyTree::Plain(tree) => {
                let message =
                    format!("the tree {:?} keeps one value per key: open it with the option \"multi\"", tree.name());
                Err(Failure::argument(message))
            }
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            AnyTree::Plain(tree) => tree.name(),
            AnyTree::Multi(tree) => tree.name(),
        }
    }
}

/// Calls the method of a tree, a snapshot or a transaction, by the place of the handle `$of`.
macro_rules! read_at {
    ($of:expr, $tree:ident, $method:ident($($argument:expr),*)) => {
        match &$of.place {
            $crate::place::Place::Latest => Ok($tree.$method($($argument),*)?),
            $crate::place::Place::Snapshot(snapshot) => Ok(snapshot.$method($tree, $($argument),*)?),
            $crate::place::Place::Transaction(cell) => cell.with(|open| Ok(open.$method($tree, $($argument),*)?)),
        }
    };
    ($of:expr, multi $tree:ident, $method:ident($($argument:expr),*)) => {
        match &$of.place {
            $crate::place::Place::Latest => Ok($tree.$method($($argument),*)?),
            $crate::place::Place::Snapshot(snapshot) => Ok(snapshot.multi_tree($tree).$method($($argument),*)?),
            $crate::place::Place::Transaction(cell) => cell.with(|open| Ok(open.multi_tree($tree).$method($($argument),*)?)),
        }
    };
}
pub(crate) use read_at;

pub(crate) fn of_snapshot() -> Failure {
    Failure::argument(
        "the tree is of a snapshot, which cannot be changed: write through the tree that `braid_tree_open` gave",
    )
}

pub(crate) fn not_in_transaction(what: &str) -> Failure {
    Failure::argument(format!(
        "{what} is one commit of its own, and the tree is of a transaction: use the tree that `braid_tree_open` gave"
    ))
}
