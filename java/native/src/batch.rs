//! Batches: Java collects writes in a buffer, and one call commits them.

use crate::{
    admin::time_of,
    boundary::{Outcome, handle, native, split},
    codec::Reader,
    database,
    errors::Failure,
    options,
    scan::Range,
    tree::{AnyTree, Expiry, TreeCell},
};
use braiddb::Batch;
use jni::sys::{jint, jlong};

const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;
const MERGE: u8 = 3;
const ADD: u8 = 4;
const DELETE_PAIR: u8 = 5;
const CURSOR: u8 = 6;
const PUT_EXPIRING: u8 = 7;

native! {
    /// Commits a batch. The buffer has the handles of its trees; `writes` is the address of the
    /// writes, each with the index of its tree.
    fn batch_commit(database: jlong, durability: jint, trees_len: jint, writes: jlong, writes_len: jint) |buffer| {
        let mut batch = database::open(database)?.batch();
        let (trees, _) = split(buffer, trees_len)?;
        let (mut handles, mut trees) = (Reader::new(trees), Vec::new());
        while !handles.is_at_end() {
            trees.push(handle::<TreeCell>(handles.long()?)?);
        }
        let mut writes = Reader::new(crate::boundary::second_buffer(writes, writes_len)?);
        while !writes.is_at_end() {
            add(&mut batch, &trees, &mut writes)?;
        }
        let sequence = match options::durability(durability)? {
            Some(durability) => batch.commit_with(durability)?,
            None => batch.commit()?,
        };
        Ok(sequence as jlong)
    }
}

fn add(batch: &mut Batch, trees: &[&TreeCell], writes: &mut Reader<'_>) -> Outcome<()> {
    let (write, tree) = (writes.byte()?, writes.count()?);
    if write == CURSOR {
        batch.set_application_cursor(writes.bytes()?);
        return Ok(());
    }
    let cell = *trees.get(tree as usize).ok_or_else(|| Failure::argument("a write has no tree"))?;
    match write {
        PUT => _ = batch.put(cell.plain()?, writes.bytes()?, writes.bytes()?),
        PUT_EXPIRING => {
            let (kind, micros) = (writes.byte()?, writes.long()?);
            let (tree, key, value) = (cell.plain()?, writes.bytes()?, writes.bytes()?);
            match Expiry::of(kind, micros)? {
                Expiry::OfTree => _ = batch.put(tree, key, value),
                Expiry::After(ttl) => _ = batch.put_with_ttl(tree, key, value, ttl),
                Expiry::At(micros) => _ = batch.put_until(tree, key, value, time_of(micros)?),
                Expiry::Kept => return Err(Failure::argument("a batch reads no keys, so it keeps no time to live")),
            }
        }
        DELETE => {
            let key = writes.bytes()?;
            match &cell.tree {
                AnyTree::Plain(tree) => _ = batch.delete(tree, key),
                AnyTree::Multi(tree) => _ = batch.delete(tree, key),
            }
        }
        DELETE_RANGE => {
            let range = Range::read(writes)?;
            match &cell.tree {
                AnyTree::Plain(tree) => _ = batch.delete_range(tree, range.bounds()),
                AnyTree::Multi(tree) => _ = batch.delete_range(tree, range.bounds()),
            }
        }
        MERGE => {
            let (name, key, operand) = (writes.text()?, writes.bytes()?, writes.bytes()?);
            batch.merge(cell.plain()?, key, &cell.merge_function(name)?, operand);
        }
        ADD => _ = batch.add(cell.multi()?, writes.bytes()?, writes.bytes()?),
        DELETE_PAIR => _ = batch.delete_pair(cell.multi()?, writes.bytes()?, writes.bytes()?),
        _ => return Err(Failure::internal(format!("there is no write {write}"))),
    }
    Ok(())
}
