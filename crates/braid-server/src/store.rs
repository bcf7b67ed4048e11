//! The database of a server.

use braiddb::{Db, Follower};
use std::sync::Arc;

/// The database that a [`Server`](crate::Server) serves.
#[derive(Clone, Debug)]
pub struct Store(Source);

#[derive(Clone, Debug)]
enum Source {
    Owner(Db),
    Follower(Arc<Follower>),
}

impl Store {
    /// Serves a database that this process has open.
    pub fn owner(db: &Db) -> Store {
        Store(Source::Owner(db.clone()))
    }

    /// Serves the states of a follower, for reading. Each request sees the state of its beginning.
    pub fn follower(follower: Follower) -> Store {
        Store(Source::Follower(Arc::new(follower)))
    }

    pub(crate) fn db(&self) -> Db {
        match &self.0 {
            Source::Owner(db) => db.clone(),
            Source::Follower(follower) => follower.db(),
        }
    }

    pub(crate) fn is_follower(&self) -> bool {
        matches!(self.0, Source::Follower(_))
    }
}
