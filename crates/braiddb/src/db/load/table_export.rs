//! Exports key ranges as tables for other databases.

use super::external_table::{TableBuilder, TableInfo};
use crate::{
    base::{Error, Result},
    db::handles::{iter::user_bounds, key_range::KeyRange, tree::Tree},
};
use std::{path::Path, sync::Arc};

#[cold]
fn merged_with_end(key: &[u8]) -> Error {
    Error::InvalidArgument(format!(
        "the key b\"{}\" has operands of merge functions above a value that expires, which a table cannot hold: put its value once more, \
         or make a dump",
        key.escape_ascii()
    ))
}

impl Tree {
    /// Exports a range at the latest snapshot as new tables in `dir`, `000001.table` and so on, for
    /// [`Tree::ingest`] into this tree; another tree needs its own [`Tree::table_spec`]. Removes
    /// them on failure.
    ///
    /// Records keep their expiry time; expired ones are omitted. Fails with `InvalidArgument` at
    /// merge operands above an expiring value, which a table cannot hold (see
    /// [`Tree::put_with_ttl`]).
    pub fn export_tables(&self, range: impl KeyRange, dir: impl AsRef<Path>) -> Result<Vec<TableInfo>> {
        let mut tables = Vec::new();
        let done = self.export(range, dir.as_ref(), &mut tables);
        if done.is_err() {
            for table in &tables {
                if let Err(error) = self.db().engine().settings.vfs.remove(&table.path) {
                    tracing::warn!(path = %table.path.display(), %error, "a table of a failed export could not be removed");
                }
            }
        }
        done.map(|()| tables)
    }

    fn export(&self, range: impl KeyRange, dir: &Path, tables: &mut Vec<TableInfo>) -> Result<()> {
        let (spec, settings) = (self.table_spec()?, &self.db().engine().settings);
        let mut open: Option<TableBuilder> = None;
        let (start, end) = user_bounds(self.state().id, &range);
        let is_before_end = |key: &[u8]| end.as_deref().is_none_or(|end| key < end);
        let mut cursor = self.cursor();
        let mut is_there = is_before_end(&start) && cursor.begin_at(true, &start)?;
        while is_there && is_before_end(cursor.internal_key()) {
            if let Some(full) = open.take_if(|table| table.is_full()) {
                tables.push(full.finish()?);
            }
            let table = match &mut open {
                Some(table) => table,
                none => {
                    let path = dir.join(format!("{:06}.table", tables.len() + 1));
                    let (vfs, runtime) = (Arc::clone(&settings.vfs), Arc::clone(&settings.runtime));
                    none.insert(TableBuilder::create_in(vfs, runtime, &path, &spec)?)
                }
            };
            let (key, value) = cursor.row()?;
            let expires_us = cursor.expires_us()?;
            if expires_us.is_some() && cursor.is_merged() {
                return Err(merged_with_end(key));
            }
            table.add_with_end(key, value, expires_us)?;
            is_there = cursor.next()?;
        }
        if let Some(last) = open {
            tables.push(last.finish()?);
        }
        Ok(())
    }
}
