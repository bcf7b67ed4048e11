//! fjall. Buffered commits go to the operating system (`PersistMode::Buffer`, its default). Durable
//! ones call `SyncData`, which its documentation calls sufficient on a sound file system.

use super::engine::{Access, Engine, Op, Reader, Rows, Setup, Visit};
use anyhow::Result;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, config::CompressionPolicy};

pub struct Fjall {
    db: Database,
    rows: Keyspace,
    durable: bool,
}

impl Fjall {
    pub fn open(setup: Setup<'_>) -> Result<Fjall> {
        // For writes, half of the budget is memtables, one filled while the other is flushed; for
        // reads nearly all is block cache.
        let memtable = match setup.access {
            Access::Write => setup.budget / 4,
            Access::Read | Access::Half | Access::Cold => setup.budget / 16,
        };
        let memtable = memtable.clamp(1 << 20, 64 << 20);
        let cache = setup.budget.saturating_sub(2 * memtable).max(1 << 20);
        let db = Database::builder(setup.folder.join("db"))
            .cache_size(cache as u64)
            .journal_compression(CompressionType::None)
            .open()?;
        let rows = db.keyspace("rows", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable as u64)
                .data_block_compression_policy(CompressionPolicy::disabled())
        })?;
        Ok(Fjall { db, rows, durable: setup.durable })
    }
}

impl Engine for Fjall {
    fn write(&self, ops: &[Op<'_>]) -> Result<()> {
        if let [Op { key, value: Some(value) }] = ops {
            self.rows.insert(*key, *value)?;
        } else {
            let mut batch = self.db.batch();
            for op in ops {
                match op.value {
                    Some(value) => batch.insert(&self.rows, op.key, value),
                    None => batch.remove(&self.rows, op.key),
                }
            }
            batch.commit()?;
        }
        if self.durable {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn load_sorted(&self, rows: &mut dyn Rows) -> Result<()> {
        let mut ingestion = self.rows.start_ingestion()?;
        while let Some((key, value)) = rows.next() {
            ingestion.write(key, value)?;
        }
        Ok(ingestion.finish()?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader { rows: &self.rows }))
    }

    fn flush(&self) -> Result<()> {
        Ok(self.rows.rotate_memtable_and_wait()?)
    }
}

struct FjallReader<'a> {
    rows: &'a Keyspace,
}

impl Reader for FjallReader<'_> {
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let value = self.rows.get(key)?;
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.rows.range(from..), visit)
    }

    fn scan_back(&mut self, visit: Visit<'_>) -> Result<()> {
        show(self.rows.iter().rev(), visit)
    }

    fn scan_prefix(&mut self, prefix: &[u8], visit: Visit<'_>) -> Result<()> {
        show(self.rows.prefix(prefix), visit)
    }
}

fn show(rows: impl Iterator<Item = fjall::Guard>, visit: Visit<'_>) -> Result<()> {
    for row in rows {
        let (key, value) = row.into_inner()?;
        if !visit(&key, &value) {
            break;
        }
    }
    Ok(())
}
