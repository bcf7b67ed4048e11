//! Writes an export.
//!
//! Values of merge functions are exported without operands, indexes as definitions.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use braiddb::{Db, stats::TreeInfo};

use super::{
    line::{End, Header, Line, TreeLine, VERSION, options_of},
    walk::{Walk, Walked},
};
use crate::{
    exit::{NOT_FOUND, failure},
    import::{IMPORT_TREE, IndexSpec, Indexes, stored_key_notation},
    notation::{KeyNotation, key_to_json, show_name},
    text_form::to_json,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteReport {
    pub records: u64,
    pub left_out: Vec<String>,
}

pub type TakeLine<'a> = dyn FnMut(&[u8], u64) -> Result<()> + 'a;

pub fn write_export(db: &Db, names: &[String], keep_going: bool, take: &mut TakeLine<'_>) -> Result<WriteReport> {
    let trees = chosen(db, names)?;
    let snapshot = db.snapshot();
    let header =
        Header { braid_export: VERSION, trees: trees.iter().map(|tree| describe(db, tree)).collect::<Result<_>>()? };
    take(&serde_json::to_vec(&header)?, 0)?;
    let mut writer = Writer { records: 0, take };
    let mut walk = Walk { snapshot, keep_going, left_out: Vec::new() };
    for (info, line) in trees.iter().zip(&header.trees) {
        writer.line(&Line { tree: Some(info.name.clone()), ..Line::default() })?;
        let walked = Walked { name: &line.name, keys: line.keys };
        let mut visit = |key: &[u8], value: &[u8], expires| writer.record(key, value, expires, line.keys);
        match info.multi {
            false => walk.records(&db.open_tree(&info.name)?, walked, &mut visit)?,
            true => walk.pairs(&db.open_multi_tree(&info.name)?, walked, &mut visit)?,
        }
    }
    let end = End { records: writer.records, left_out: walk.left_out.len() as u64 };
    writer.line(&Line { end: Some(end), ..Line::default() })?;
    Ok(WriteReport { records: writer.records, left_out: walk.left_out })
}

/// Returns the named trees, or all trees but indexes and import records.
fn chosen(db: &Db, names: &[String]) -> Result<Vec<TreeInfo>> {
    let all = db.trees()?;
    if names.is_empty() {
        let mut derived = vec![IMPORT_TREE.to_owned()];
        for tree in &all {
            derived.extend(Indexes::stored_specs(db, &tree.name)?.into_iter().map(|spec| spec.name));
        }
        return Ok(all.into_iter().filter(|tree| !derived.contains(&tree.name)).collect());
    }
    let mut trees: Vec<TreeInfo> = Vec::new();
    for name in names {
        let Some(tree) = all.iter().find(|tree| tree.name == *name) else {
            let message = format!("there is no tree named {}; `braid trees` lists them", show_name(name));
            return Err(failure(NOT_FOUND, message));
        };
        if trees.iter().all(|chosen| chosen.name != *name) {
            trees.push(tree.clone());
        }
    }
    Ok(trees)
}

fn describe(db: &Db, tree: &TreeInfo) -> Result<TreeLine> {
    let mut line = TreeLine {
        name: tree.name.clone(),
        multi: tree.multi,
        keys: stored_key_notation(db, &tree.name)?,
        compression: None,
        blob_threshold: None,
        codec: None,
        ttl_us: None,
        indexes: Indexes::stored_specs(db, &tree.name)?
            .into_iter()
            .map(|spec| IndexSpec { unfinished: false, ..spec })
            .collect(),
    };
    line.set_options(&options_of(tree));
    Ok(line)
}

struct Writer<'a, 'b> {
    records: u64,
    take: &'a mut TakeLine<'b>,
}

impl Writer<'_, '_> {
    fn line(&mut self, line: &Line) -> Result<()> {
        (self.take)(&serde_json::to_vec(line)?, self.records)
    }

    fn record(&mut self, key: &[u8], value: &[u8], expires: Option<SystemTime>, keys: KeyNotation) -> Result<()> {
        let since = expires.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let expires_us = since.map(|since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX));
        let (key, value) = (Some(key_to_json(key, keys)), Some(to_json(value)));
        self.records += 1;
        self.line(&Line { key, value, expires_us, ..Line::default() })
    }
}
