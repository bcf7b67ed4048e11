//! Writes: of a tree handle, which commits or belongs to a transaction, and of a batch.

use crate::{
    boundary::{Failure, Outcome},
    place::{AnyTree, Place, of_snapshot},
    range::Range,
    tree::braid_tree,
};
use braiddb::Batch;
use std::time::Duration;

pub(crate) enum Write<'a> {
    Put(&'a [u8], &'a [u8]),
    PutTtl(&'a [u8], &'a [u8], Duration),
    Delete(&'a [u8]),
    DeletePair(&'a [u8], &'a [u8]),
    DeleteRange(Range),
    /// The function's name, the key, and the operand.
    Merge(&'a str, &'a [u8], &'a [u8]),
}

pub(crate) enum Target<'a> {
    Handle,
    Batch(&'a mut Batch),
}

/// Calls the method of a tree, of its view in a transaction, or of a batch: their names are the
/// same.
macro_rules! write_to {
    ($target:expr, $place:expr, $view:ident($tree:expr), $method:ident($($argument:expr),*)) => {
        match ($target, $place) {
            (Target::Batch(batch), Place::Latest) => {
                batch.$method($tree, $($argument),*);
                Ok(())
            }
            (Target::Batch(_), _) => Err(Failure::argument(
                "a batch takes trees that `braid_tree_open` gave, not those of a snapshot or transaction",
            )),
            (Target::Handle, Place::Latest) => {
                $tree.$method($($argument),*)?;
                Ok(())
            }
            (Target::Handle, Place::Snapshot(_)) => Err(of_snapshot()),
            (Target::Handle, Place::Transaction(cell)) => {
                cell.with(|open| Ok(open.$view($tree).$method($($argument),*)?))
            }
        }
    };
}

impl Write<'_> {
    pub(crate) fn apply(self, of: &braid_tree, target: Target<'_>) -> Outcome<()> {
        match (self, &of.tree) {
            (Write::Put(key, value), AnyTree::Plain(to)) => write_to!(target, &of.place, tree(to), put(key, value)),
            (Write::Put(key, value), AnyTree::Multi(to)) => {
                write_to!(target, &of.place, multi_tree(to), add(key, value))
            }
            (Write::PutTtl(key, value, ttl), AnyTree::Plain(to)) => {
                write_to!(target, &of.place, tree(to), put_with_ttl(key, value, ttl))
            }
            (Write::PutTtl(..), AnyTree::Multi(_)) => Err(Failure::argument("pairs do not expire")),
            (Write::Delete(key), AnyTree::Plain(to)) => write_to!(target, &of.place, tree(to), delete(key)),
            (Write::Delete(key), AnyTree::Multi(to)) => write_to!(target, &of.place, multi_tree(to), delete(key)),
            (Write::DeletePair(key, value), to) => {
                let to = to.multi()?;
                write_to!(target, &of.place, multi_tree(to), delete_pair(key, value))
            }
            (Write::DeleteRange(range), AnyTree::Plain(to)) => {
                write_to!(target, &of.place, tree(to), delete_range(range.bounds()))
            }
            (Write::DeleteRange(range), AnyTree::Multi(to)) => {
                write_to!(target, &of.place, multi_tree(to), delete_range(range.bounds()))
            }
            (Write::Merge(name, key, operand), to) => {
                let (function, to) = (of.merge_function(name)?, to.plain()?);
                write_to!(target, &of.place, tree(to), merge(key, &function, operand))
            }
        }
    }
}
