//! Readings of a database directory, beside the process that has it open.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use braiddb::{
    Db, Follower,
    platform::{SystemVfs, Vfs as _},
    stats::{Stats, TreeInfo},
};

use super::reading::{Reading, Sizes, TREES_AGE_MAX, TreeLine, largest};
use crate::{arguments::OpenArguments, commands::open_follower, notation::show_name};

const LOCK_NAME: &str = "LOCK";

pub struct Files {
    follower: Follower,
    lock: PathBuf,
    trees: Mutex<Option<Trees>>,
}

#[derive(Clone)]
struct Trees {
    lines: Vec<TreeLine>,
    left_out: usize,
    alarms: Vec<String>,
    read: Instant,
}

impl Files {
    pub fn open(path: &Path, arguments: &OpenArguments) -> Result<Files> {
        Ok(Files { follower: open_follower(path, arguments)?, lock: path.join(LOCK_NAME), trees: Mutex::default() })
    }

    /// The first reading has no trees: their sizes can take long.
    pub fn read_first(&self) -> Result<Reading> {
        let empty = Trees { lines: Vec::new(), left_out: 0, alarms: Vec::new(), read: Instant::now() };
        self.follower.refresh()?;
        Ok(self.reading(empty))
    }

    pub fn read(&self) -> Result<Reading> {
        self.follower.refresh()?;
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match trees.take().filter(|trees| trees.read.elapsed() < TREES_AGE_MAX) {
            Some(trees) => trees,
            None => self.read_trees()?,
        };
        Ok(self.reading(trees.insert(found).clone()))
    }

    fn read_trees(&self) -> Result<Trees> {
        let db = self.follower.db();
        let (mut lines, mut alarms) = (Vec::new(), Vec::new());
        for tree in db.trees()? {
            match line_of(&db, &tree) {
                Ok(line) => lines.push(line),
                // The tree was dropped meanwhile.
                Err(error) if error.is_not_found() => {}
                // Damage in one tree hides no other.
                Err(error) => alarms.push(format!("{}: {error}", show_name(&tree.name))),
            }
        }
        let (lines, left_out) = largest(lines);
        Ok(Trees { lines, left_out, alarms, read: Instant::now() })
    }

    fn reading(&self, trees: Trees) -> Reading {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stats = self.follower.db().stats();
        Reading {
            time_us: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
            sizes: sizes_of(&stats),
            inside: None,
            trees: trees.lines,
            trees_left_out: trees.left_out,
            alarms: stats.damaged_partitions.into_iter().chain(trees.alarms).collect(),
            owner: self.owner(),
        }
    }

    fn owner(&self) -> String {
        match SystemVfs::new().lock_owner(&self.lock) {
            Ok(Some(owner)) => format!("open in {owner}"),
            Ok(None) => "open in no known process".to_owned(),
            Err(error) => format!("its lock cannot be read: {error}"),
        }
    }
}

fn sizes_of(stats: &Stats) -> Sizes {
    let partitions = &stats.partitions;
    Sizes {
        last_commit: stats.last_sequence,
        disk_bytes: stats.disk_bytes,
        partitions: partitions.len() as u64,
        runs: partitions.iter().map(|partition| partition.runs.len() as u64).sum(),
        unindexed_runs: partitions.iter().map(|partition| partition.loose.len() as u64).sum(),
        garbage_entries: partitions.iter().map(|partition| partition.view_stale).sum(),
    }
}

fn line_of(db: &Db, tree: &TreeInfo) -> braiddb::Result<TreeLine> {
    let estimate = match tree.multi {
        true => db.open_multi_tree(&tree.name)?.approximate(..)?,
        false => db.open_tree(&tree.name)?.approximate(..)?,
    };
    Ok(TreeLine { name: tree.name.clone(), is_multi: tree.multi, keys: estimate.keys, bytes: estimate.bytes })
}
