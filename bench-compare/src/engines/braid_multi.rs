//! BraidDB's multi-trees with the settings of its plain trees.

use super::{
    Braid, Setup,
    multi::{MultiEngine, MultiReader, VisitPair},
};
use crate::{data::Key, meter};
use anyhow::Result;
use braiddb::{Durability, MultiTree, views::MultiCursor};

pub struct BraidMulti {
    braid: Braid,
    tree: MultiTree,
}

impl BraidMulti {
    pub fn open(setup: Setup<'_>) -> Result<BraidMulti> {
        let braid = Braid::open(setup)?;
        let tree = braid.db().multi_tree("pairs")?;
        Ok(BraidMulti { braid, tree })
    }
}

impl MultiEngine for BraidMulti {
    fn add(&self, pairs: &[(Key, Key)]) -> Result<()> {
        if let [(key, value)] = pairs {
            self.tree.add(key, value)?;
            return Ok(());
        }
        let mut batch = self.braid.db().batch();
        for (key, value) in pairs {
            batch.add(&self.tree, key, value);
        }
        batch.commit_with(Durability::Buffered)?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.braid.db().flush()?;
        meter::wait_for_rest();
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn MultiReader + '_>> {
        Ok(Box::new(BraidMultiReader { tree: &self.tree, cursor: self.tree.cursor() }))
    }
}

/// The cursor stays at one snapshot, like LMDB's transaction.
struct BraidMultiReader<'a> {
    tree: &'a MultiTree,
    cursor: MultiCursor,
}

impl MultiReader for BraidMultiReader<'_> {
    fn contains(&mut self, key: &[u8], value: &[u8]) -> Result<bool> {
        Ok(self.tree.contains_pair(key, value)?)
    }

    fn count(&mut self, key: &[u8]) -> Result<u64> {
        Ok(self.tree.count_values(key)?)
    }

    fn count_by_cursor(&mut self, key: &[u8]) -> Result<u64> {
        Ok(self.cursor.count_values_of(key)?)
    }

    fn values(&mut self, key: &[u8], visit: VisitPair<'_>) -> Result<()> {
        let mut is_there = self.cursor.seek_first_value(key)?;
        while is_there {
            let (key, value) = self.cursor.pair();
            visit(key, value);
            is_there = self.cursor.next_value()?;
        }
        Ok(())
    }

    fn seek_value(&mut self, key: &[u8], value: &[u8], visit: VisitPair<'_>) -> Result<()> {
        if self.cursor.seek_value(key, value)? {
            let (key, value) = self.cursor.pair();
            visit(key, value);
        }
        Ok(())
    }

    fn all(&mut self, visit: VisitPair<'_>) -> Result<()> {
        let mut is_there = self.cursor.seek_first()?;
        while is_there {
            let (key, value) = self.cursor.pair();
            visit(key, value);
            is_there = self.cursor.next()?;
        }
        Ok(())
    }
}
