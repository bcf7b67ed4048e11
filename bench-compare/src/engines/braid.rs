//! BraidDB, as it comes, but for the budget and compression (off for all).

use super::engine::{Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use braiddb::{Compression, Db, Durability, Tree};

/// Rows in a commit of a sorted load. There is no call made for that yet.
const LOAD_BATCH_LEN: usize = 1000;

pub struct Braid {
    db: Db,
    tree: Tree,
    durability: Durability,
}

impl Braid {
    pub fn open(setup: Setup<'_>) -> Result<Braid> {
        let durability = if setup.durable { Durability::Sync } else { Durability::Buffered };
        let db = Db::builder()
            .memory(setup.budget)
            .durability(durability)
            .compression(Compression::None)
            .open(setup.folder.join("db"))?;
        let tree = db.tree("rows")?;
        Ok(Braid { db, tree, durability })
    }
}

impl Engine for Braid {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        if let [Op { key, value: Some(value) }] = ops {
            self.tree.put(key, value)?;
            return Ok(());
        }
        let mut batch = self.db.batch();
        for op in ops {
            match op.value {
                Some(value) => batch.put(&self.tree, op.key, value),
                None => batch.delete(&self.tree, op.key),
            };
        }
        self.db.write(batch, self.durability)?;
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(BraidReader { tree: &self.tree }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn replayed(&self) -> Option<u64> {
        Some(self.db.stats().recovered_records)
    }
}

/// Each call reads what is there when it begins.
struct BraidReader<'a> {
    tree: &'a Tree,
}

impl Reader for BraidReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.tree.get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[&[u8]], found: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, value) in self.tree.multi_get(keys)?.iter().enumerate() {
            if let Some(value) = value {
                found(index, value);
            }
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.tree.range(from..), visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        show(self.tree.iter().rev(), visit)
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.tree.prefix(prefix), visit)
    }
}

fn show(rows: impl Iterator<Item = braiddb::Result<(braiddb::Key, braiddb::Value)>>, visit: Visit<'_>) -> Result<()> {
    for row in rows {
        let (key, value) = row?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}
