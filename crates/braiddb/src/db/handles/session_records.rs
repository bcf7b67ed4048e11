//! Records of sessions in the catalog: see `crate::shared`.
//!
//! The catalog is out of reach for the calls of users, and its entries may use the reserve on a
//! full disk. So a forwarded delete succeeds there, as an ordinary one does.

use super::database::Db;
use crate::{
    base::{Cursor, EntryKind, ReaderKind, Result, TreeId, split_internal_key},
    commit::RawBatch,
    db::{
        engine::{
            catalog::{SESSION_TAG, catalog_key},
            read_hold::Hold,
            settings::Durability,
        },
        read::point_read,
        write::pipeline,
    },
    read::{LookupKey, ScanCursor},
};
use std::path::Path;

impl Db {
    pub(crate) fn dir(&self) -> &Path {
        &self.engine().dir
    }

    /// Returns the record of a session.
    pub(crate) fn session_record(&self, session: &[u8]) -> Result<Option<Vec<u8>>> {
        let _inside = self.engine().health.enter()?;
        let key = catalog_key(SESSION_TAG, session);
        point_read::get(self.engine(), LookupKey::of(&key), None, |value| value.into_owned())
    }

    /// Returns the sessions that have a record, with their records.
    pub(crate) fn session_records(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let engine = self.engine();
        let _inside = engine.health.enter()?;
        let hold = Hold::now(engine, ReaderKind::Iterator);
        let state = engine.cell.state.load_full();
        let mut cursor = ScanCursor::new(&state, hold.sequence(), TreeId::CATALOG);
        let mut records = Vec::new();
        cursor.seek(&catalog_key(SESSION_TAG, b""))?;
        while cursor.valid() {
            let entry = cursor.entry();
            let Some((TreeId::CATALOG, [SESSION_TAG, session @ ..])) = split_internal_key(entry.key) else { break };
            records.push((session.to_vec(), entry.value.to_vec()));
            cursor.next()?;
        }
        Ok(records)
    }

    pub(crate) fn remove_session_record(&self, session: &[u8]) -> Result<()> {
        let _inside = self.engine().health.enter()?;
        let mut batch = RawBatch::default();
        batch.push(EntryKind::Tombstone, &[&catalog_key(SESSION_TAG, session)], b"");
        pipeline::commit(self.engine(), batch.prepare()?, Durability::Buffered).map(drop)
    }
}
