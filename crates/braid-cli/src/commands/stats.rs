//! `braid stats`

use std::io::Write;

use anyhow::Result;
use braiddb::{
    Db,
    platform::{SystemVfs, Vfs as _},
    stats::{RangeEstimate, TreeInfo},
};
use serde_json::{Value, json};

use super::open::open_for_reading;
use crate::{
    arguments::{StatsArguments, StatsOptions},
    demo::Drawn,
    exit::OK,
    notation::{show_bytes, show_count, show_counted, show_name},
    output::Stdout,
    statistics::{self, Seen},
};

const LOCK_NAME: &str = "LOCK";

const UNKNOWN: &str = "
counters, memory, readers and slow commits: known only to the process that has the database open for
writing. A server shows them: `braid top http://HOST:PORT`, or GET /stats
";

/// Maximum trees to show by default.
const TREES_MAX: usize = 100;

struct TreeSize {
    tree: TreeInfo,
    estimate: braiddb::Result<RangeEstimate>,
    is_exact: bool,
}

pub fn stats(arguments: &StatsArguments) -> Result<u8> {
    let db = open_for_reading(&arguments.db, &arguments.read)?;
    let owner = SystemVfs::new().lock_owner(&arguments.db.join(LOCK_NAME)).ok().flatten();
    let mut out = Stdout::new();
    write_stats(&db, &arguments.shown, Seen::ByReader { owner }, &mut out)?;
    out.finish()?;
    Ok(OK)
}

pub fn write_stats(db: &Db, arguments: &StatsOptions, seen: Seen, out: &mut dyn Write) -> Result<()> {
    let stats = db.stats();
    let trees = db.trees()?;
    let shown = if arguments.trees { trees.len() } else { trees.len().min(TREES_MAX) };
    let left_out = trees.len() - shown;
    let sizes: Vec<TreeSize> = trees.into_iter().take(shown).map(|tree| size_of(db, tree, arguments.count)).collect();
    if arguments.json {
        let mut report = statistics::to_json(&stats);
        if let Seen::ByReader { owner } = &seen {
            statistics::remove_unknown(&mut report, owner.as_deref());
        }
        report["trees"] = sizes.iter().map(to_json).collect();
        report["trees_left_out"] = json!(left_out);
        writeln!(out, "{report}")?;
    } else {
        statistics::write_text(&stats, &seen, if arguments.partitions { Drawn::All } else { Drawn::Worst }, out)?;
        write_text(&sizes, left_out, out)?;
        if let Seen::ByReader { .. } = seen {
            out.write_all(UNKNOWN.as_bytes())?;
        }
    }
    Ok(())
}

fn size_of(db: &Db, tree: TreeInfo, count: bool) -> TreeSize {
    let estimate = estimate(db, &tree, count);
    let is_exact = estimate.as_ref().is_ok_and(|found| found.keys_min == found.keys_max);
    TreeSize { tree, estimate, is_exact }
}

fn estimate(db: &Db, tree: &TreeInfo, count: bool) -> braiddb::Result<RangeEstimate> {
    let (mut found, counted) = if tree.multi {
        let tree = db.open_multi_tree(&tree.name)?;
        (tree.approximate(..)?, count.then(|| tree.len()).transpose()?)
    } else {
        let tree = db.open_tree(&tree.name)?;
        (tree.approximate(..)?, count.then(|| tree.len()).transpose()?)
    };
    if let Some(keys) = counted {
        (found.keys, found.keys_min, found.keys_max) = (keys, keys, keys);
    }
    Ok(found)
}

fn to_json(size: &TreeSize) -> Value {
    let TreeSize { tree, estimate, is_exact } = size;
    let mut line = json!({"name": tree.name, "id": tree.id, "multi": tree.multi});
    match estimate {
        Ok(found) => {
            line["keys"] = json!(found.keys);
            line["keys_min"] = json!(found.keys_min);
            line["keys_max"] = json!(found.keys_max);
            line["exact"] = json!(is_exact);
            line["bytes"] = json!(found.bytes);
        }
        Err(error) => line["error"] = json!(error.to_string()),
    }
    line
}

fn write_text(sizes: &[TreeSize], left_out: usize, out: &mut dyn Write) -> Result<()> {
    if sizes.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    for TreeSize { tree, estimate, is_exact } in sizes {
        let name = show_name(&tree.name);
        let what = if tree.multi { "pair" } else { "key" };
        match estimate {
            Ok(found) => {
                let about = if *is_exact { "" } else { "about " };
                let (keys, bytes) = (show_counted(found.keys, what), show_bytes(found.bytes));
                writeln!(out, "tree {name}: {about}{keys}, {bytes}")?;
            }
            Err(error) => writeln!(out, "tree {name}: {error}")?,
        }
    }
    if left_out > 0 {
        writeln!(out, "and {} more trees: --trees shows all", show_count(left_out as u64))?;
    }
    Ok(())
}
