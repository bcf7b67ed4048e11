//! The database, and the rows that it must contain.

use anyhow::{Context, Result};
use braiddb::{Db, Durability, Tree};

use super::{
    ledger::{Ledger, ROWS_MAX},
    place::{PLAIN_TREE, Place, YCSB_TREE},
    rows::{KeyOrder, Keys, is_of_row},
    store::{Bounds, Store, TreeStore},
    workload::Which,
};
use crate::{exit::usage, notation::show_count, text_form::to_hex};

pub struct Database<'a> {
    place: &'a Place,
    key_size: usize,
    db: Option<Db>,
    plain: Ledger,
    ycsb: Ledger,
}

impl<'a> Database<'a> {
    pub fn open(place: &'a Place, key_size: usize) -> Result<Database<'a>> {
        let db = Some(place.open()?);
        let mut database = Database { place, key_size, db, plain: Ledger::default(), ycsb: Ledger::default() };
        let names: Vec<String> = database.db()?.trees()?.into_iter().map(|tree| tree.name).collect();
        for which in [Which::Plain, Which::Ycsb] {
            if names.iter().any(|name| name == tree_name(which)) {
                database.learn(which)?;
            }
        }
        if !names.is_empty() {
            // An empty cache for the measurement.
            database.close()?;
            database.db = Some(place.open()?);
        }
        Ok(database)
    }

    pub fn db(&self) -> Result<&Db> {
        self.db.as_ref().context("the database could not be opened again")
    }

    pub fn tree(&self, which: Which) -> Result<Tree> {
        Ok(self.db()?.tree(tree_name(which))?)
    }

    pub fn keys(&self, which: Which) -> Keys {
        let order = match which {
            Which::Plain => KeyOrder::Numbers,
            Which::Ycsb => KeyOrder::Scattered,
        };
        Keys { order, size: self.key_size }
    }

    pub fn ledger(&mut self, which: Which) -> &mut Ledger {
        match which {
            Which::Plain => &mut self.plain,
            Which::Ycsb => &mut self.ycsb,
        }
    }

    pub fn empty(&mut self) -> Result<()> {
        self.close()?;
        self.place.clear()?;
        self.db = Some(self.place.open()?);
        (self.plain, self.ycsb) = (Ledger::default(), Ledger::default());
        Ok(())
    }

    pub fn close(&mut self) -> Result<()> {
        self.db.take().map_or(Ok(()), Db::close)?;
        Ok(())
    }

    pub fn verify(&mut self) -> Result<(Vec<String>, String)> {
        let report = self.db()?.verify()?;
        let mut problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
        let mut rows = 0;
        for which in [Which::Plain, Which::Ycsb] {
            problems.extend(self.verify_rows(which, &mut rows)?);
        }
        Ok((problems, format!("{} files, {} rows", show_count(report.files), show_count(rows))))
    }

    fn verify_rows(&mut self, which: Which, rows: &mut u64) -> Result<Option<String>> {
        let (mut count, mut strange, mut last_head) = (0_u64, 0_u64, None);
        let keys = self.keys(which);
        let tree = self.tree(which)?;
        let db = self.db()?.clone();
        let ledger = self.ledger(which);
        read_all(&db, &tree, |key, value| {
            let head = keys.head_of(key);
            let row = head.map(|head| keys.row_of_head(head));
            let is_right = row.is_some_and(|row| ledger.contains(row) && is_of_row(value, row)) && head > last_head;
            last_head = head;
            count += 1;
            strange += u64::from(!is_right);
            Ok(())
        })?;
        *rows += count;
        let wanted = ledger.count();
        let problem = format!(
            "{}: {} rows, of which {} are unexpected or not what was stored; expected {} rows",
            tree_name(which),
            show_count(count),
            show_count(strange),
            show_count(wanted)
        );
        Ok((strange > 0 || count != wanted).then_some(problem))
    }

    fn learn(&mut self, which: Which) -> Result<()> {
        let (keys, tree, db) = (self.keys(which), self.tree(which)?, self.db()?.clone());
        let dir = self.place.dir().display().to_string();
        let ledger = self.ledger(which);
        read_all(&db, &tree, |key, _| {
            let row = keys.head_of(key).map(|head| keys.row_of_head(head)).filter(|row| *row < ROWS_MAX);
            let row = row.ok_or_else(|| {
                usage(format!(
                    "{dir} has a key of {} bytes ({}..) that no benchmark with --key-size {} wrote: name another directory",
                    key.len(),
                    to_hex(&key[..key.len().min(20)]),
                    keys.size
                ))
            })?;
            ledger.insert(row);
            Ok(())
        })
    }
}

fn tree_name(which: Which) -> &'static str {
    match which {
        Which::Plain => PLAIN_TREE,
        Which::Ycsb => YCSB_TREE,
    }
}

fn read_all(db: &Db, tree: &Tree, mut see: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut store = TreeStore::new(db, tree, Durability::Buffered);
    store.seek_part(&Bounds::default(), false)?;
    let mut seen = Ok(());
    while seen.is_ok() && store.next(|key, value| seen = see(key, value))? {}
    seen
}
