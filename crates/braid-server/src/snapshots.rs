//! Snapshots kept between the pages of scans: a table of limited size, whose entries expire.
//!
//! A kept snapshot pins old versions of records, so an unused one is dropped after
//! [`Limits::snapshot_life`](crate::Limits), and the one unused for longest when the table is full.

use crate::{json, opened::Opened, options::Limits};
use braiddb::Snapshot;
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The parameters of a scan: the same for all its pages.
#[derive(Clone, Debug)]
pub struct Scan {
    pub snapshot: Snapshot,
    pub tree: Opened,
    /// To refuse a token of another tree.
    pub tree_name: String,
    /// First key.
    pub start: Vec<u8>,
    /// Key after the last one.
    pub end: Option<Vec<u8>>,
    pub is_reverse: bool,
    pub has_values: bool,
    pub has_tuples: bool,
}

/// The table. Locked for a lookup or an insertion only.
pub struct Snapshots {
    table: Mutex<Table>,
    len_max: usize,
    life: Duration,
}

struct Table {
    /// Random at first, so that tokens of an earlier server are unknown.
    next_id: u64,
    kept: HashMap<u64, Kept>,
}

struct Kept {
    scan: Arc<Scan>,
    used: Instant,
}

impl Snapshots {
    pub fn new(limits: &Limits) -> io::Result<Snapshots> {
        let next_id = getrandom::u64().map_err(io::Error::other)?;
        let table = Mutex::new(Table { next_id, kept: HashMap::new() });
        Ok(Snapshots { table, len_max: limits.snapshots, life: limits.snapshot_life })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the snapshot of a scan, and returns its number; `known` is that of an earlier page.
    pub fn keep(&self, scan: &Arc<Scan>, known: Option<u64>) -> u64 {
        let now = Instant::now();
        let mut table = self.table();
        table.drop_expired(now, self.life);
        let id = known.unwrap_or_else(|| {
            table.next_id = table.next_id.wrapping_add(1);
            table.next_id
        });
        table.kept.insert(id, Kept { scan: Arc::clone(scan), used: now });
        while table.kept.len() > self.len_max {
            let Some(oldest) = table.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(id, _)| *id) else { break };
            table.kept.remove(&oldest);
        }
        id
    }

    /// Returns a kept scan; `None` if it has expired.
    pub fn find(&self, id: u64) -> Option<Arc<Scan>> {
        let now = Instant::now();
        let mut table = self.table();
        table.drop_expired(now, self.life);
        let kept = table.kept.get_mut(&id)?;
        kept.used = now;
        Some(Arc::clone(&kept.scan))
    }

    /// Drops the snapshot of a scan that has ended.
    pub fn end(&self, id: u64) {
        self.table().kept.remove(&id);
    }

    /// Drops expired snapshots. Called once a second, since no request may come for long.
    pub fn drop_expired(&self) {
        self.table().drop_expired(Instant::now(), self.life);
    }

    pub fn drop_all(&self) {
        self.table().kept.clear();
    }

    pub fn len(&self) -> usize {
        self.table().kept.len()
    }
}

impl Table {
    fn drop_expired(&mut self, now: Instant, life: Duration) {
        self.kept.retain(|_, kept| now.saturating_duration_since(kept.used) < life);
    }
}

/// Returns the text of a position: the number of a scan and the place of the next row.
pub fn token(id: u64, place: &[u8]) -> String {
    json::to_hex(&[&id.to_be_bytes(), place].concat())
}

/// Parses the text of a position.
pub fn parse_token(text: &[u8]) -> Option<(u64, Vec<u8>)> {
    let bytes = json::from_hex(str::from_utf8(text).ok()?)?;
    let (id, place) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*id), place.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use braiddb::Db;

    fn scan(db: &Db) -> Arc<Scan> {
        Arc::new(Scan {
            snapshot: db.snapshot(),
            tree: Opened::Single(db.tree("t").unwrap()),
            tree_name: "t".to_owned(),
            start: Vec::new(),
            end: None,
            is_reverse: false,
            has_values: true,
            has_tuples: false,
        })
    }

    #[test]
    fn full_table_drops_the_snapshot_unused_for_longest() {
        let db = Db::in_memory().unwrap();
        let snapshots = Snapshots::new(&Limits { snapshots: 2, ..Limits::default() }).unwrap();
        let ids = [snapshots.keep(&scan(&db), None), snapshots.keep(&scan(&db), None)];
        assert!(snapshots.find(ids[0]).is_some());
        let third = snapshots.keep(&scan(&db), None);
        assert!(snapshots.find(ids[1]).is_none());
        assert!(snapshots.find(ids[0]).is_some() && snapshots.find(third).is_some());
        assert_eq!(snapshots.keep(&scan(&db), Some(third)), third);
        assert_eq!(snapshots.len(), 2);
        snapshots.end(third);
        assert!(snapshots.find(third).is_none());
    }

    #[test]
    fn snapshot_expires_after_its_last_use() {
        let db = Db::in_memory().unwrap();
        let life = Duration::from_millis(1);
        let snapshots = Snapshots::new(&Limits { snapshot_life: life, ..Limits::default() }).unwrap();
        let before = db.stats().snapshots;
        let id = snapshots.keep(&scan(&db), None);
        assert_eq!(db.stats().snapshots, before + 1);
        std::thread::sleep(2 * life);
        snapshots.drop_expired();
        assert_eq!(db.stats().snapshots, before);
        assert!(snapshots.find(id).is_none());
    }

    #[test]
    fn token_round_trips() {
        assert_eq!(parse_token(token(7, b"k\0").as_bytes()), Some((7, b"k\0".to_vec())));
        assert_eq!(parse_token(token(u64::MAX, b"").as_bytes()), Some((u64::MAX, Vec::new())));
        for wrong in ["", "00", "0000000000000", "000000000000000g", "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}"]
        {
            assert_eq!(parse_token(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
