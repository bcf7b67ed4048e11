//! Imports an export.
//!
//! Problems with any tree of the header are reported before anything is stored. Records are stored
//! in batches; those before an error stay.

use std::{
    io::BufRead,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use braiddb::{Batch, Db, Durability, MultiTree, Tree};
use serde::Serialize;

use super::line::{End, Header, Line, TreeLine, VERSION};
use crate::{
    exit::{INPUT, failure, usage},
    import::{IMPORT_TREE, Indexes, KnownTrees, NewNotation, batch_bytes},
    input::unreadable,
    interrupt,
    notation::{key_from_json, show_count, show_name},
    text_form::from_json,
    typed,
};

const BATCH_RECORDS: usize = 2000;

/// Expiry of a record without one in a tree with a TTL: in half a million years.
const NEVER_US: u64 = u64::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReadReport {
    pub trees: u64,
    pub records: u64,
    pub left_out: u64,
}

pub struct StoreOptions<'a> {
    /// The database; `None` only checks the export.
    pub db: Option<&'a Db>,
    pub tree: Option<&'a str>,
    pub durability: Durability,
}

pub struct ExportReader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> ExportReader<R> {
    pub fn new(input: R) -> ExportReader<R> {
        ExportReader { input, line: Vec::new(), number: 0 }
    }

    pub fn store(mut self, options: &StoreOptions<'_>, progress: &mut dyn FnMut(u64)) -> Result<ReadReport> {
        let header = self.header()?;
        if let Some(name) = options.tree
            && header.trees.len() != 1
        {
            let trees = header.trees.len();
            return Err(usage(format!(
                "the export has {trees} trees: omit --tree {}, which names only one",
                show_name(name)
            )));
        }
        let batch_bytes = options.db.map_or(0, batch_bytes);
        let mut store = Store {
            options,
            stores: Vec::new(),
            batch: options.db.map(Db::batch),
            batch_bytes,
            records: 0,
            committed: 0,
            known: options.db.map(KnownTrees::of).transpose()?,
        };
        let stored = self.store_all(&header, &mut store, progress);
        store.settle(stored.is_err())?;
        stored
    }

    fn store_all(
        &mut self,
        header: &Header,
        store: &mut Store<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ReadReport> {
        store.open(header)?;
        let mut report = ReadReport { trees: header.trees.len() as u64, ..ReadReport::default() };
        let read = self.records(header, store, progress);
        let stored = match &read {
            Err(error) if error.downcast_ref::<braiddb::Error>().is_some() => Ok(()),
            _ => store.commit(),
        };
        if stored.is_ok() {
            progress(store.records);
        }
        let before = |error: anyhow::Error| {
            let (records, done) = match store.options.db {
                None => (store.records, "sound"),
                Some(_) => (store.committed, "stored"),
            };
            let again = match error.downcast_ref::<braiddb::Error>() {
                Some(_) => "; run the same command again: it begins with the first record",
                None => "",
            };
            error.context(format!("the records before it, {} of them, are {done}{again}", show_count(records)))
        };
        let end = read.map_err(before)?;
        stored.map_err(before)?;
        (report.records, report.left_out) = (store.records, end.left_out);
        Ok(report)
    }

    fn header(&mut self) -> Result<Header> {
        if !self.next_line()? {
            return Err(failure(INPUT, "the export is empty"));
        }
        let refused = |why: String| failure(INPUT, format!("line 1 is not the first line of an export: {why}"));
        let value: serde_json::Value =
            serde_json::from_slice(&self.line).map_err(|error| refused(error.to_string()))?;
        match value.get("braid_export").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(version) => {
                let message = format!("the export has version {version}: import it with a newer braid");
                return Err(failure(INPUT, message));
            }
            None => return Err(refused("\"braid_export\" has no version".to_owned())),
        }
        serde_json::from_value(value).map_err(|error| refused(error.to_string()))
    }

    fn records(&mut self, header: &Header, store: &mut Store<'_>, progress: &mut dyn FnMut(u64)) -> Result<End> {
        let mut tree: Option<usize> = None;
        let mut last: Option<(Vec<u8>, Vec<u8>)> = None;
        while self.next_line()? {
            interrupt::check()?;
            let line: Line = serde_json::from_slice(&self.line).map_err(|error| self.wrong(&error.to_string()))?;
            match line {
                Line { tree: Some(name), key: None, value: None, expires_us: None, end: None } => {
                    let next = tree.map_or(0, |tree| tree + 1);
                    if header.trees.get(next).is_none_or(|tree| tree.name != name) {
                        let name = show_name(&name);
                        return Err(self.wrong(&format!("the records of {name} are out of order")));
                    }
                    (tree, last) = (Some(next), None);
                }
                Line { tree: None, key: None, value: None, expires_us: None, end: Some(end) } => {
                    return self.check_end(end, tree, header, store.records);
                }
                Line { tree: None, key: Some(key), value: Some(value), expires_us, end: None } => {
                    let key = key_from_json(key).ok_or_else(|| self.wrong("the key is neither text nor bytes"))?;
                    let value = from_json(value).ok_or_else(|| self.wrong("the value is neither text nor bytes"))?;
                    let place = tree.ok_or_else(|| self.wrong("a record before the first tree"))?;
                    let multi = header.trees[place].multi;
                    if last
                        .as_ref()
                        .is_some_and(|last| *last >= (key.clone(), value.clone()) || !multi && last.0 == key)
                    {
                        return Err(self.wrong("a record out of order"));
                    }
                    if store.add(place, &key, &value, expires_us).map_err(|error| self.in_line(error))? {
                        progress(store.records);
                    }
                    last = Some((key, value));
                }
                _ => return Err(self.wrong("it is neither a tree, nor a record, nor the end")),
            }
        }
        Err(failure(INPUT, format!("the export is incomplete: it has no end after line {}", self.number)))
    }

    fn check_end(&mut self, end: End, tree: Option<usize>, header: &Header, records: u64) -> Result<End> {
        if end.records != records {
            let counts = format!("{} records are missing or too many", end.records.abs_diff(records));
            return Err(self.wrong(&format!("{counts}: the export has {}, not {}", records, end.records)));
        }
        if tree.map_or(0, |tree| tree + 1) != header.trees.len() {
            return Err(self.wrong("a tree of the first line is missing"));
        }
        match self.next_line()? {
            true => Err(self.wrong("a line after the end")),
            false => Ok(end),
        }
    }

    /// Returns false at the end of the input.
    fn next_line(&mut self) -> Result<bool> {
        self.line.clear();
        self.input.read_until(b'\n', &mut self.line).map_err(unreadable)?;
        if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok(true)
    }

    fn wrong(&self, why: &str) -> anyhow::Error {
        failure(INPUT, format!("line {} of the export is damaged: {why}", self.number))
    }

    fn in_line(&self, error: anyhow::Error) -> anyhow::Error {
        error.context(format!("line {} of the export cannot be stored", self.number))
    }
}

enum TreeStore {
    /// `has_typed_records`: the tree is typed, and had records before.
    Plain {
        tree: Tree,
        indexes: Indexes,
        has_ttl: bool,
        has_typed_records: bool,
    },
    Multi(MultiTree),
}

struct Store<'a> {
    options: &'a StoreOptions<'a>,
    /// In the order of the header; empty if nothing is stored.
    stores: Vec<TreeStore>,
    batch: Option<Batch>,
    batch_bytes: usize,
    records: u64,
    committed: u64,
    known: Option<KnownTrees>,
}

impl Store<'_> {
    fn name<'n>(&'n self, line: &'n TreeLine) -> &'n str {
        self.options.tree.unwrap_or(&line.name)
    }

    fn open(&mut self, header: &Header) -> Result<()> {
        let mut checked = Vec::new();
        for line in &header.trees {
            let options = line.options().ok_or_else(|| {
                let name = show_name(&line.name);
                let (compression, codec) = (line.compression.as_deref(), line.codec.as_deref());
                let (compression, codec) = (compression.unwrap_or("none"), codec.unwrap_or("none"));
                failure(
                    INPUT,
                    format!(
                        "the tree {name} has an unknown compression ({compression}) or codec ({codec}): import it with a newer braid"
                    ),
                )
            })?;
            checked.push((line, options));
        }
        let Some(db) = self.options.db else { return Ok(()) };
        let (mut notations, mut have_typed_records) = (Vec::new(), Vec::new());
        for (line, _) in &checked {
            let name = self.name(line);
            if name == IMPORT_TREE {
                return Err(usage(format!("the tree {IMPORT_TREE} is reserved, and cannot be imported")));
            }
            if db.tree_info(name)?.is_some_and(|known| known.multi != line.multi) {
                let (name, one_or_many) = (show_name(name), if line.multi { "many values" } else { "one value" });
                return Err(usage(format!(
                    "the tree {name} exists, but does not have {one_or_many} per key: name another --tree"
                )));
            }
            have_typed_records.push(typed::check_import_of_export(db, name)?);
            notations.push(NewNotation::claim(db, name, line.keys, "the export")?);
        }
        // Trees with indexes first: they create index trees, which may be in the export too.
        let mut indexes = Vec::new();
        for (line, options) in &checked {
            if !line.multi && !line.indexes.is_empty() {
                db.tree_with(self.name(line), *options)?;
            }
            indexes.push(match line.multi {
                true => None,
                false if line.indexes.is_empty() => Some(Indexes::load(db, self.name(line))?),
                false => Some(Indexes::declare_now(db, self.name(line), &line.indexes)?),
            });
        }
        let mut batch = db.batch();
        let lines = checked.into_iter().zip(&mut notations).zip(indexes).zip(have_typed_records);
        for ((((line, options), notation), indexes), has_typed_records) in lines {
            let name = self.options.tree.unwrap_or(&line.name);
            let has_ttl = options.ttl.is_some();
            self.stores.push(match indexes {
                None => TreeStore::Multi(db.multi_tree(name)?),
                Some(indexes) => {
                    TreeStore::Plain { tree: db.tree_with(name, options)?, indexes, has_ttl, has_typed_records }
                }
            });
            if !notation.is_needless() {
                notation.store(db, name, &db.tree(IMPORT_TREE)?, &mut batch)?;
            }
        }
        batch.commit_with(Durability::Sync)?;
        Ok(())
    }

    fn settle(&mut self, has_failed: bool) -> Result<()> {
        self.stores.clear();
        let (Some(db), Some(known)) = (self.options.db, &self.known) else { return Ok(()) };
        if !has_failed {
            return known.note_new(db);
        }
        known.drop_new(db, self.committed == 0);
        let _ = known.note_new(db);
        Ok(())
    }

    /// Returns whether a batch was committed.
    fn add(&mut self, place: usize, key: &[u8], value: &[u8], expires_us: Option<u64>) -> Result<bool> {
        self.records += 1;
        let Some(batch) = &mut self.batch else { return Ok(self.records.is_multiple_of(1000)) };
        match &self.stores[place] {
            TreeStore::Multi(_) if expires_us.is_some() => {
                return Err(failure(INPUT, "a record of a multi-value tree cannot expire"));
            }
            TreeStore::Multi(tree) => {
                batch.add(tree, key, value);
            }
            TreeStore::Plain { tree, indexes, has_ttl, has_typed_records } => {
                if *has_typed_records {
                    typed::check_entry(tree, key)?;
                }
                if !indexes.specs.is_empty() {
                    if expires_us.is_some() {
                        return Err(failure(INPUT, "a record of a tree with indexes cannot expire"));
                    }
                    let old = tree.get(key)?.map(|stored| indexes.keys_of_stored(&stored)).unwrap_or_default();
                    indexes.replace(batch, key, &old, &indexes.keys_of_stored(value));
                }
                match expires_us.or(has_ttl.then_some(NEVER_US)) {
                    None => batch.put(tree, key, value),
                    Some(expires_us) => batch.put_until(tree, key, value, moment(expires_us)),
                };
            }
        }
        if batch.size_bytes() < self.batch_bytes && batch.len() < BATCH_RECORDS {
            return Ok(false);
        }
        self.commit()?;
        Ok(true)
    }

    fn commit(&mut self) -> Result<()> {
        if let (Some(db), Some(batch)) = (self.options.db, &mut self.batch)
            && !batch.is_empty()
        {
            let full = std::mem::replace(batch, db.batch());
            full.commit_with(self.options.durability).context("cannot store a batch")?;
        }
        self.committed = self.records;
        Ok(())
    }
}

fn moment(us: u64) -> SystemTime {
    let later = |us: u64| UNIX_EPOCH.checked_add(Duration::from_micros(us));
    (0..64).find_map(|halvings| later(us >> halvings)).unwrap_or(UNIX_EPOCH)
}
