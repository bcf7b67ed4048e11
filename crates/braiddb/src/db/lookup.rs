//! Point reads of the core, and the healing of views that they find damaged.

use super::{background::damaged_view, core::Core};
use crate::{
    base::{EntryKind, EntryRef, Error, Result, SequenceNumber, TreeId},
    read,
};

/// How often one read tries again after a damaged view was set aside.
const HEAL_TRIES: usize = 64;

impl Core {
    /// The value of an internal key at a snapshot, or now.
    pub fn get(&self, key: &[u8], snapshot: Option<SequenceNumber>) -> Result<Option<Vec<u8>>> {
        self.check_open()?;
        self.healing(|| {
            self.with_entry(key, snapshot, |entry| match entry.kind {
                EntryKind::BlobRef => self.blobs.read(entry.value),
                _ => Ok(entry.value.to_vec()),
            })
        })
    }

    /// Whether an internal key has a value at a snapshot, or now.
    pub fn contains(&self, key: &[u8], snapshot: Option<SequenceNumber>) -> Result<bool> {
        self.check_open()?;
        Ok(self.healing(|| self.with_entry(key, snapshot, |_| Ok(())))?.is_some())
    }

    fn with_entry<R>(
        &self,
        key: &[u8],
        snapshot: Option<SequenceNumber>,
        found: impl FnOnce(EntryRef<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let guard = crossbeam_epoch::pin();
        // The state comes first: see `ReadState`.
        let state = self.state.load();
        let snapshot = snapshot.unwrap_or_else(|| self.snapshots.visible());
        read::get(&state, key, snapshot, &guard)?.map(found).transpose()
    }

    fn healing<R>(&self, mut read: impl FnMut() -> Result<R>) -> Result<R> {
        for _ in 0..HEAL_TRIES {
            match read() {
                Err(e) => self.heal(e)?,
                done => return done,
            }
        }
        read()
    }

    /// Sets aside the view that an error is about; any other error is returned.
    pub fn heal(&self, error: Error) -> Result<()> {
        // Whoever opened the database since may have removed what was to be read.
        self.check_open()?;
        match damaged_view(&error) {
            Some(number) => self.note_damaged_view(number, &error),
            None => Err(error),
        }
    }

    /// About how many keys a tree has.
    pub fn len_estimate(&self, tree: TreeId) -> Result<u64> {
        self.check_open()?;
        self.healing(|| {
            let state = self.state.load_full();
            let (start, end) = (tree.first_key(), tree.end_key());
            let mut count = 0;
            for partition in &state.version.partitions {
                let layout = &partition.layout;
                let before = end.is_some_and(|end| layout.start.as_slice() >= end.as_slice());
                if before || layout.end.as_deref().is_some_and(|e| e <= start.as_slice()) {
                    continue;
                }
                count += partition_estimate(partition, &start, end.as_ref().map(|e| e.as_slice()))?;
            }
            let in_memory = |m: &std::sync::Arc<crate::memtable::Memtable>| -> u64 {
                let mut scan = m.scan_from(&start);
                let mut count = 0;
                while scan.advance() && end.is_none_or(|e| scan.entry().key < e.as_slice()) {
                    count += u64::from(scan.entry().kind != EntryKind::Tombstone);
                }
                count
            };
            Ok(count + state.memtables().map(in_memory).sum::<u64>())
        })
    }
}

fn partition_estimate(partition: &crate::version::Partition, start: &[u8], end: Option<&[u8]>) -> Result<u64> {
    let layout = &partition.layout;
    let from = start.max(&layout.start);
    let to = match (end, layout.end.as_deref()) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let mut count = 0;
    if let Some(view) = &partition.view {
        let meta = view.meta();
        let runs = &partition.view_runs;
        let upper = to.map_or(Ok(meta.entries), |to| view.rank(runs, to))?;
        let entries = upper.saturating_sub(view.rank(runs, from)?);
        let live = meta.entries - (meta.stale + meta.tombstones).min(meta.entries);
        count += (u128::from(entries) * u128::from(live) / u128::from(meta.entries.max(1))) as u64;
    }
    for handle in &partition.apart {
        let view = handle.view()?;
        let upper = to.map_or(Ok(view.meta().entries), |to| view.rank(handle.alone(), to))?;
        count += upper.saturating_sub(view.rank(handle.alone(), from)?);
    }
    Ok(count)
}
