//! `braid del` of a key range.
//!
//! Trees with indexes and multi-value trees are deleted in batches with their index entries; after
//! a kill, repeat the command. Other trees use one range delete.

use anyhow::Result;
use braiddb::{Db, Durability, MultiTree, Tree};

use super::{count::KeyRange, open::NamedTree};
use crate::{
    import::Indexes,
    interrupt::{self, Pace},
    typed,
};

const BATCH_RECORDS: u64 = 1000;

pub fn del_range(db: &Db, name: &str, range: KeyRange, durability: Durability) -> Result<u64> {
    interrupt::begin(Pace::AtOnce, |_| {
        "records deleted so far stay deleted, with their index entries; run the command again to delete the others"
            .to_owned()
    });
    match NamedTree::open(db, name)? {
        NamedTree::Plain(tree) => {
            typed::check_write(&tree, None)?;
            let indexes = Indexes::load(db, name)?;
            if !indexes.specs.is_empty() {
                return del_indexed(db, &tree, &indexes, range, durability);
            }
            let count = tree.count(range.clone())?;
            if count > 0 {
                let mut batch = db.batch();
                batch.delete_range(&tree, range);
                batch.commit_with(durability)?;
            }
            Ok(count)
        }
        NamedTree::Multi(tree) => del_pairs(db, &tree, range, durability),
    }
}

fn del_indexed(db: &Db, tree: &Tree, indexes: &Indexes, range: KeyRange, durability: Durability) -> Result<u64> {
    let (mut batch, mut count) = (db.batch(), 0);
    for record in tree.range(range) {
        let (key, value) = record?;
        indexes.replace(&mut batch, &key, &indexes.keys_of_stored(&value), &[]);
        batch.delete(tree, &key);
        count += 1;
        if count % BATCH_RECORDS == 0 {
            std::mem::replace(&mut batch, db.batch()).commit_with(durability)?;
        }
    }
    if !batch.is_empty() {
        batch.commit_with(durability)?;
    }
    Ok(count)
}

fn del_pairs(db: &Db, tree: &MultiTree, range: KeyRange, durability: Durability) -> Result<u64> {
    let (mut batch, mut count) = (db.batch(), 0);
    for pair in tree.range(range) {
        let (key, value) = pair?;
        batch.delete_pair(tree, &key, &value);
        count += 1;
        if count % BATCH_RECORDS == 0 {
            std::mem::replace(&mut batch, db.batch()).commit_with(durability)?;
        }
    }
    if !batch.is_empty() {
        batch.commit_with(durability)?;
    }
    Ok(count)
}
