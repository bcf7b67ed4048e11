//! sled 0.34. Buffered commits stay in sled's buffer until it flushes, twice a second, so they do
//! not survive the end of the process. A durable commit calls `flush`.

use super::engine::{Engine, Op, Reader, Rows, Setup, Visit, append_in_batches};
use anyhow::Result;
use sled::{Batch, Db, IVec, Mode};

const LOAD_BATCH_LEN: usize = 1000;

pub struct Sled {
    db: Db,
    durable: bool,
}

impl Sled {
    pub fn open(setup: Setup<'_>) -> Result<Sled> {
        let db = sled::Config::new()
            .path(setup.folder.join("db"))
            .cache_capacity(setup.budget as u64)
            // Its documentation: for speed at the cost of space.
            .mode(Mode::HighThroughput)
            .open()?;
        Ok(Sled { db, durable: setup.durable })
    }
}

impl Engine for Sled {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        if let [Op { key, value: Some(value) }] = ops {
            self.db.insert(key, *value)?;
        } else {
            let mut batch = Batch::default();
            for op in ops {
                match op.value {
                    Some(value) => batch.insert(op.key, value),
                    None => batch.remove(op.key),
                }
            }
            self.db.apply_batch(batch)?;
        }
        if self.durable {
            self.db.flush()?;
        }
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        append_in_batches(self, rows, LOAD_BATCH_LEN)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SledReader { db: &self.db }))
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(())
    }
}

struct SledReader<'a> {
    db: &'a Db,
}

impl Reader for SledReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.db.get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.db.range(from..), visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        show(self.db.iter().rev(), visit)
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.db.scan_prefix(prefix), visit)
    }
}

fn show(rows: impl Iterator<Item = sled::Result<(IVec, IVec)>>, visit: Visit<'_>) -> Result<()> {
    for row in rows {
        let (key, value) = row?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}
