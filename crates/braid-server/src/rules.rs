//! Rules for writes by clients: the tree's own program may keep more than the record.

use crate::problem::Problem;
use braiddb::{Db, MultiTree, Tree};
use braiddb_typed::guard;
use hyper::StatusCode;
use std::{fmt, sync::Arc};

/// Rules of the program around a [`Server`](crate::Server), for trees that clients must not write.
/// Each error is the reason with its remedy, and becomes a response with the status 409.
///
/// Without rules, the server keeps those of `braiddb-typed` only: keys and values of the tree's
/// codec, and no writes to trees with secondary indexes.
pub trait Rules: fmt::Debug + Send + Sync {
    /// Checks that clients may put and delete records of a tree.
    fn check_records(&self, db: &Db, tree: &str) -> Result<(), String>;

    /// Checks that clients may create a tree.
    fn check_create(&self, db: &Db, tree: &str) -> Result<(), String>;

    /// Checks that clients may drop a tree.
    fn check_drop(&self, db: &Db, tree: &str) -> Result<(), String>;
}

/// All rules of a server.
#[derive(Clone, Debug, Default)]
pub struct Checks(Option<Arc<dyn Rules>>);

impl Checks {
    pub fn new(rules: Option<Arc<dyn Rules>>) -> Checks {
        Checks(rules)
    }

    /// Checks that clients may write records of a tree.
    pub fn of_records(&self, db: &Db, tree: &Tree) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |rules| rules.check_records(db, &tree.name())).map_err(refused)?;
        guard::refusal_of_write(tree, None)?.map_or(Ok(()), |reason| Err(refused(reason)))
    }

    /// Checks that clients may write pairs of a tree with many values per key.
    pub fn of_pairs(&self, db: &Db, tree: &MultiTree) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |rules| rules.check_records(db, &tree.name())).map_err(refused)
    }

    /// Checks a record for the tree's codec.
    pub fn of_put(&self, tree: &Tree, key: &[u8], value: Option<&[u8]>) -> Result<(), Problem> {
        let codec = tree.options().codec;
        let of_value = || value.and_then(|value| guard::refusal_of_value(codec, value));
        guard::refusal_of_write(tree, Some(key))?.or_else(of_value).map_or(Ok(()), |reason| Err(refused(reason)))
    }

    /// Checks that clients may create a tree.
    pub fn of_create(&self, db: &Db, tree: &str) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |rules| rules.check_create(db, tree)).map_err(refused)
    }

    /// Checks that clients may drop a tree.
    pub fn of_drop(&self, db: &Db, tree: &str) -> Result<(), Problem> {
        self.0.as_ref().map_or(Ok(()), |rules| rules.check_drop(db, tree)).map_err(refused)
    }
}

/// Returns the problem of a write that the tree does not permit.
pub fn refused(reason: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, "Write not permitted", reason)
}
