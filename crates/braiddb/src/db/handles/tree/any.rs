//! Trees of both kinds, for deletes.

use super::{
    super::{
        batch::Batch,
        iter::user_bounds,
        key_range::KeyRange,
        multi::tree::{MultiTree, bounds_of, bounds_of_keys},
    },
    Tree,
};
use crate::{base::EntryKind, db::engine::catalog::TreeState};
use std::sync::Arc;

/// A [`Tree`] or a [`MultiTree`].
pub trait AnyTree: sealed::Sealed {}

impl AnyTree for Tree {}
impl AnyTree for MultiTree {}

pub(in crate::db) mod sealed {
    use super::{Arc, Batch, KeyRange, TreeState};

    pub trait Sealed {
        fn state_of(&self) -> &Arc<TreeState>;

        /// Internal keys: inclusive start, exclusive end.
        fn bounds(&self, range: &impl KeyRange) -> (Vec<u8>, Option<Vec<u8>>);

        fn delete_in(&self, batch: &mut Batch, key: &[u8]);
    }
}

impl sealed::Sealed for Tree {
    fn state_of(&self) -> &Arc<TreeState> {
        self.state()
    }

    fn bounds(&self, range: &impl KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
        user_bounds(self.state().id, range)
    }

    fn delete_in(&self, batch: &mut Batch, key: &[u8]) {
        batch.push(EntryKind::Tombstone, self, key, b"");
    }
}

impl sealed::Sealed for MultiTree {
    fn state_of(&self) -> &Arc<TreeState> {
        self.state()
    }

    fn bounds(&self, range: &impl KeyRange) -> (Vec<u8>, Option<Vec<u8>>) {
        bounds_of_keys(self.state().id, range)
    }

    fn delete_in(&self, batch: &mut Batch, key: &[u8]) {
        let (start, end) = bounds_of(self.state().id, key);
        batch.push_range_delete(self.state(), &[key], &start, &end);
    }
}
