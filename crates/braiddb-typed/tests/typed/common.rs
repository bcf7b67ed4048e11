//! Records and databases for the tests.

use braiddb::{Builder, Db};
use braiddb_sim::SimRuntime;
use braiddb_typed::{Error, Json, Result, TypedTree};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub email: Option<String>,
    pub tags: Vec<String>,
}

pub type Users<C = Json> = TypedTree<u32, User, C>;

pub fn user(name: &str, email: &str, tags: &[&str]) -> User {
    let email = (!email.is_empty()).then(|| email.to_owned());
    User { name: name.to_owned(), email, tags: tags.iter().map(|tag| (*tag).to_owned()).collect() }
}

/// Opens the tree with a plain, a unique and a multiple index.
pub fn users(db: &Db) -> Result<Users> {
    TypedTree::builder(db, "users")
        .index("name", |user: &User| user.name.clone())
        .unique_index_many("email", |user: &User| user.email.clone())
        .index_many("tags", |user: &User| user.tags.clone())
        .open()
}

pub fn in_memory() -> Db {
    Db::in_memory().unwrap()
}

/// A database in memory with a clock of the test.
pub fn with_clock() -> (Db, Arc<SimRuntime>) {
    let runtime = SimRuntime::with_threads(7);
    let builder = Builder::new().background_threads(0).runtime(Arc::clone(&runtime) as _);
    (builder.open_in_memory().unwrap(), runtime)
}

/// Returns the keys of an iterator's records.
pub fn keys<K, V>(records: impl Iterator<Item = Result<(K, V)>>) -> Vec<K> {
    records.map(|record| record.unwrap().0).collect()
}

/// Verifies the indexes and returns the number of entries.
pub fn verified(users: &Users) -> u64 {
    let report = users.verify_indexes().unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.records, users.len().unwrap());
    report.entries
}

/// Returns the message of an error that contains all parts.
pub fn message<T: std::fmt::Debug>(result: std::result::Result<T, Error>, parts: &[&str]) -> String {
    let message = result.unwrap_err().to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    message
}
