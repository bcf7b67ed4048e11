//! Commands of the shell that write: each in the open transaction, else in one of its own.

use std::{io::Write, time::Duration};

use anyhow::Result;
use braiddb::{Db, Transaction};
use serde_json::json;

use super::{
    place::{Place, View},
    session::{OpenTransaction, Session, missing},
    syntax::{Point, Span},
};
use crate::{
    arguments::{InputFormat, KeyArguments},
    commands::{NamedTree, key_notation, parse_value, refuse_own_tree},
    exit::{NOT_FOUND, OK, SYSTEM, failure, usage},
    import::Indexes,
    notation::{KeyNotation, parse_key, show_counted, show_name},
    output::note,
    text_form::parse_text,
    typed,
};

impl Session {
    pub(super) fn begin(&mut self, is_exclusive: bool, out: &mut dyn Write) -> Result<u8> {
        let db = self.writable()?;
        if self.open.is_some() {
            return Err(usage("a transaction is open: commit or roll back first"));
        }
        let transaction = if is_exclusive { db.begin_exclusive()? } else { db.begin()? };
        self.open = Some(OpenTransaction { transaction, is_exclusive, savepoints: Vec::new(), created: Vec::new() });
        self.answer(json!({"transaction": "begun", "exclusive": is_exclusive}), out)
    }

    pub(super) fn commit(&mut self, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let OpenTransaction { transaction, created, .. } = self.open.take().ok_or_else(no_transaction)?;
        let commit = transaction.commit_with(self.durability).map_err(|error| {
            self.drop_empty(&created);
            explained(error)
        })?;
        if is_json || self.is_json {
            writeln!(out, "{}", json!({"commit": commit}))?;
        }
        Ok(OK)
    }

    pub(super) fn rollback(&mut self, savepoint: Option<&str>, out: &mut dyn Write) -> Result<u8> {
        let Some(name) = savepoint else {
            let open = self.open.take().ok_or_else(no_transaction)?;
            self.discard(open);
            return self.answer(json!({"transaction": "rolled back"}), out);
        };
        let open = self.open.as_mut().ok_or_else(no_transaction)?;
        let place = open.savepoints.iter().position(|(known, _)| known == name);
        let place = place.ok_or_else(|| failure(NOT_FOUND, format!("the transaction has no savepoint {name}")))?;
        open.transaction.rollback_to(open.savepoints[place].1)?;
        open.savepoints.truncate(place + 1);
        self.answer(json!({"savepoint": name, "rolled_back": true}), out)
    }

    /// Drops the transaction, and the trees that only it was to fill.
    pub(super) fn discard(&self, open: OpenTransaction) {
        let OpenTransaction { transaction, created, .. } = open;
        drop(transaction);
        self.drop_empty(&created);
    }

    /// Drops trees of one value per key that have no record. Ignores errors: the trees are only
    /// leftovers.
    fn drop_empty(&self, names: &[String]) {
        let db = self.db();
        for name in names {
            let is_empty = db.open_tree(name).and_then(|tree| tree.first()).is_ok_and(|first| first.is_none());
            if is_empty {
                let _ = db.drop_tree(name);
            }
        }
    }

    pub(super) fn savepoint(&mut self, name: String, out: &mut dyn Write) -> Result<u8> {
        let open = self.open.as_mut().ok_or_else(no_transaction)?;
        if open.savepoints.iter().any(|(known, _)| *known == name) {
            return Err(usage(format!("the transaction has a savepoint {name}: choose another name")));
        }
        let answer = json!({"savepoint": name});
        open.savepoints.push((name, open.transaction.savepoint()));
        self.answer(answer, out)
    }

    /// Runs a write in the open transaction, or commits it on its own. Returns the commit.
    fn write<T>(&self, write: impl FnOnce(&Transaction) -> Result<T>) -> Result<(T, Option<u64>)> {
        if let Some(open) = &self.open {
            return Ok((write(&open.transaction)?, None));
        }
        let transaction = self.writable()?.begin()?;
        let done = write(&transaction)?;
        if transaction.is_empty() {
            return Ok((done, None));
        }
        let commit = transaction.commit_with(self.durability).map_err(explained)?;
        Ok((done, Some(commit)))
    }

    pub(super) fn put(
        &mut self,
        at: &Point,
        value: &str,
        format: InputFormat,
        ttl: Option<u64>,
        is_json: bool,
        out: &mut dyn Write,
    ) -> Result<u8> {
        let db = self.writable()?;
        let name = self.tree_or_current(at.tree.as_deref())?;
        refuse_own_tree(&name)?;
        let notation = key_notation(&db, &name, KeyArguments { keys: at.keys })?;
        let key = parse_key(&at.key, notation)?;
        let codec = typed::codec_of(&db, &name)?;
        let value = typed::encoded(codec, parse_value(value, format)?, format == InputFormat::Text)?;
        let found = NamedTree::find(&db, &name)?;
        check_put(&db, &name, found.as_ref(), at.keys, ttl)?;
        let is_new = found.is_none();
        let tree = match found {
            Some(tree) => tree,
            None => NamedTree::Plain(self.can_create(&name)?.tree(&name)?),
        };
        let written = self.write(|transaction| {
            match &tree {
                NamedTree::Multi(tree) => transaction.multi_tree(tree).add(&key, &value)?,
                NamedTree::Plain(tree) => {
                    typed::check_write(tree, Some(&key))?;
                    let indexes = Indexes::load(&db, &name)?;
                    replace_entries(transaction, &indexes, tree, &key, Some(&value))?;
                    match ttl {
                        None => transaction.put(tree, &key, &value)?,
                        Some(ttl) => transaction.put_with_ttl(tree, &key, &value, Duration::from_secs(ttl))?,
                    }
                }
            }
            Ok(())
        });
        let ((), commit) = match written {
            Ok(written) => written,
            Err(error) => {
                if is_new {
                    self.drop_empty(&[name]);
                }
                return Err(error);
            }
        };
        if is_new {
            note!("braid: created tree {}", show_name(&name));
            self.open.iter_mut().for_each(|open| open.created.push(name.clone()));
        }
        if is_json || self.is_json {
            writeln!(out, "{}", json!({"commit": commit}))?;
        }
        Ok(OK)
    }

    pub(super) fn del(&self, at: &Point, value: Option<&str>, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let db = self.writable()?;
        let name = self.tree_or_current(at.tree.as_deref())?;
        refuse_own_tree(&name)?;
        let notation = key_notation(&db, &name, KeyArguments { keys: at.keys })?;
        let key = parse_key(&at.key, notation)?;
        let wanted = value.map(parse_text).transpose().map_err(usage)?;
        let tree = NamedTree::open(&db, &name)?;
        let (deleted, _) = self.write(|transaction| match &tree {
            NamedTree::Plain(_) if wanted.is_some() => {
                Err(usage(format!("the tree {} has one value per key: omit --value", show_name(&name))))
            }
            NamedTree::Plain(tree) => {
                typed::check_write(tree, None)?;
                if !transaction.contains(tree, &key)? {
                    return Ok(0);
                }
                replace_entries(transaction, &Indexes::load(&db, &name)?, tree, &key, None)?;
                transaction.delete(tree, &key)?;
                Ok(1)
            }
            NamedTree::Multi(tree) => {
                let pairs = transaction.multi_tree(tree);
                let values = pairs.values(&key).collect::<braiddb::Result<Vec<_>>>()?;
                let mut deleted = 0_u64;
                for value in values.iter().filter(|value| wanted.as_ref().is_none_or(|wanted| **wanted == ***value)) {
                    pairs.delete_pair(&key, value)?;
                    deleted += 1;
                }
                Ok(deleted)
            }
        })?;
        if deleted == 0 {
            return missing(&key, notation);
        }
        if is_json || self.is_json {
            writeln!(out, "{}", json!({"deleted": deleted}))?;
        }
        Ok(OK)
    }

    pub(super) fn del_range(&self, span: &Span, is_json: bool, out: &mut dyn Write) -> Result<u8> {
        let db = self.writable()?;
        let place = self.place();
        let (name, _, range) = self.span(&place, span)?;
        refuse_own_tree(&name)?;
        let tree = NamedTree::open(&db, &name)?;
        let indexes = Indexes::load(&db, &name)?;
        let (deleted, _) = self.write(|transaction| {
            let place = Place { db: db.clone(), view: View::Transaction(transaction), stop: place.stop };
            match &tree {
                NamedTree::Plain(tree) if indexes.specs.is_empty() => {
                    typed::check_write(tree, None)?;
                    let count = transaction.tree(tree).count(range.clone())?;
                    transaction.delete_range(tree, range)?;
                    Ok(count)
                }
                NamedTree::Multi(tree) => {
                    let pairs = transaction.multi_tree(tree);
                    let count = pairs.count(range.clone())?;
                    pairs.delete_range(range)?;
                    Ok(count)
                }
                NamedTree::Plain(plain) => {
                    typed::check_write(plain, None)?;
                    let keys = place.rows(&tree, range).map(|row| Ok(row?.0)).collect::<Result<Vec<_>>>()?;
                    for key in &keys {
                        place.check()?;
                        replace_entries(transaction, &indexes, plain, key, None)?;
                        transaction.delete(plain, key)?;
                    }
                    Ok(keys.len() as u64)
                }
            }
        })?;
        match is_json || self.is_json {
            true => writeln!(out, "{}", json!({"deleted": deleted}))?,
            false => writeln!(out, "{} deleted", show_counted(deleted, "record"))?,
        }
        Ok(if deleted > 0 { OK } else { NOT_FOUND })
    }
}

fn no_transaction() -> anyhow::Error {
    usage("no transaction is open: `begin` opens one")
}

/// Says what a conflict means for the session.
fn explained(error: braiddb::Error) -> anyhow::Error {
    match error.is_conflict() {
        true => failure(SYSTEM, format!("{error} (nothing of it is stored)")),
        false => error.into(),
    }
}

/// Refuses a put that the tree cannot hold.
fn check_put(db: &Db, name: &str, tree: Option<&NamedTree>, keys: Option<KeyNotation>, ttl: Option<u64>) -> Result<()> {
    let shown = show_name(name);
    let is_multi = matches!(tree, Some(NamedTree::Multi(_)));
    if ttl.is_some() && is_multi {
        return Err(usage(format!("the tree {shown} is a multi-value tree, whose values cannot expire: omit --ttl")));
    }
    let has_indexes = tree.is_some() && !Indexes::stored_specs(db, name)?.is_empty();
    if ttl.is_some() && has_indexes {
        return Err(usage("the tree has indexes, whose entries do not expire with their records: omit --ttl"));
    }
    let is_empty = match tree {
        None => true,
        Some(NamedTree::Plain(tree)) => tree.first()?.is_none(),
        Some(NamedTree::Multi(_)) => false,
    };
    // The first record fixes the notation, which the shell stores when it creates the tree.
    if keys == Some(KeyNotation::U64)
        && is_empty
        && key_notation(db, name, KeyArguments::default())? != KeyNotation::U64
    {
        return Err(usage(format!("the tree {shown} has no u64 keys: create one with `use TREE --create --keys u64`")));
    }
    Ok(())
}

/// Replaces the index entries of a record by those of its new value.
fn replace_entries(
    transaction: &Transaction,
    indexes: &Indexes,
    tree: &braiddb::Tree,
    key: &[u8],
    new: Option<&[u8]>,
) -> Result<()> {
    if indexes.specs.is_empty() {
        return Ok(());
    }
    let entries = |value: &[u8]| indexes.keys_of_stored(value);
    let old = transaction.get(tree, key)?.map(|stored| entries(&stored)).unwrap_or_default();
    let new = new.map(entries).unwrap_or_default();
    for (index, entry, is_new) in indexes.changes(&old, &new) {
        let pairs = transaction.multi_tree(index);
        if is_new { pairs.add(entry, key)? } else { pairs.delete_pair(entry, key)? }
    }
    Ok(())
}
