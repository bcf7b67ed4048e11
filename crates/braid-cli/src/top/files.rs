//! Readings of a database directory, beside the process that has it open.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Result;
use braiddb::{
    Db, Follower,
    platform::{SystemVfs, Vfs as _},
    stats::{Stats, TreeInfo},
};

use super::reading::{Reading, Sizes, TreeLine};
use crate::{
    arguments::OpenArguments,
    commands::{builder, check_directory},
    notation::show_name,
};

const LOCK_NAME: &str = "LOCK";

/// Maximum trees to show: each estimate walks over the follower's memtables.
const TREES_MAX: usize = 100;

pub struct Files {
    follower: Follower,
    lock: std::path::PathBuf,
}

impl Files {
    pub fn open(path: &Path, arguments: &OpenArguments) -> Result<Files> {
        check_directory(path)?;
        Ok(Files { follower: builder(arguments).open_follower(path)?, lock: path.join(LOCK_NAME) })
    }

    pub fn read(&self) -> Result<Reading> {
        self.follower.refresh()?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let db = self.follower.db();
        let stats = db.stats();
        let trees = db.trees()?;
        let (mut lines, mut alarms) = (Vec::new(), stats.damaged_partitions.clone());
        for tree in trees.iter().take(TREES_MAX) {
            match line_of(&db, tree) {
                Ok(line) => lines.push(line),
                // Damage in one tree hides no other.
                Err(error) => alarms.push(format!("{}: {error}", show_name(&tree.name))),
            }
        }
        Ok(Reading {
            time_us: u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX),
            sizes: sizes_of(&stats),
            inside: None,
            trees_left_out: trees.len().saturating_sub(TREES_MAX),
            trees: lines,
            alarms,
            owner: self.owner(),
        })
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
