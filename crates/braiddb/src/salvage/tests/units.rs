//! Finds the part of the file that holds each version, in the intact files and independently of
//! salvage.

use super::sample::{DIR, Sample};
use crate::{
    base::{SequenceNumber, TreeId},
    cache::BlockCache,
    commit::decode_group,
    platform::{SystemRuntime, Vfs, fault_vfs::FaultVfs},
    table::{
        Position, Run, TableContext,
        blob::{blob_path, visit_references},
    },
    version::Manifest,
    wal,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub path: PathBuf,
    pub bytes: Range<usize>,
    /// Without the file header nothing in the file can be identified.
    pub header: usize,
}

impl Unit {
    /// The header may have one damaged byte.
    pub fn is_intact(&self, before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) -> bool {
        let (Some(old), Some(new)) = (before.get(&self.path), after.get(&self.path)) else { return false };
        let wrong = old.iter().zip(new).take(self.header).filter(|(a, b)| a != b).count();
        wrong <= 1 && new.len() >= self.header && new.get(self.bytes.clone()) == old.get(self.bytes.clone())
    }
}

pub type Units = BTreeMap<Vec<u8>, BTreeMap<SequenceNumber, Vec<Unit>>>;

fn blobs_of(kind: crate::base::EntryKind, value: &[u8], units: &mut Vec<Unit>) {
    visit_references(kind, value, |blob| {
        let (offset, len) = (blob.offset as usize, blob.stored_len as usize);
        units.push(Unit { path: blob_path(Path::new(DIR), blob.file), bytes: offset..offset + len, header: 64 });
    })
    .unwrap();
}

/// If a version is in both a run and the log, the run counts.
pub fn find(sample: &Sample) -> Units {
    let vfs: Arc<dyn Vfs> = Arc::new(FaultVfs::of_files(Path::new(DIR), &sample.files));
    let runtime: Arc<dyn crate::platform::Runtime> = Arc::new(SystemRuntime::new());
    let manifest = Manifest::open(&vfs, &runtime, Path::new(DIR), true).unwrap().unwrap();
    let layout = manifest.layout();
    let context = TableContext::new(Arc::clone(&vfs), BlockCache::new(8 << 20));
    let mut units = Units::new();
    for partition in layout.partitions.values() {
        for number in partition.runs.iter().chain(&partition.loose) {
            let path = Path::new(DIR).join(format!("{number:06}.run"));
            let run = Run::open(&context, &path, &layout.runs[number]).unwrap();
            let mut scan = run.scan(Position::default());
            while scan.next().unwrap() {
                let (entry, position) = (scan.entry(), scan.position());
                let is_inside = entry.key >= partition.start.as_slice()
                    && partition.end.as_deref().is_none_or(|end| entry.key < end);
                if !is_inside || entry.key.starts_with(&TreeId::CATALOG.first_key()) {
                    continue;
                }
                let unit = run.unit_of(position.block);
                let bytes = unit.start as usize..unit.end as usize;
                let mut of = vec![Unit { path: path.clone(), bytes, header: 64 }];
                blobs_of(entry.kind, entry.value, &mut of);
                units.entry(entry.key.to_vec()).or_default().insert(entry.sequence, of);
            }
        }
    }
    for path in sample.files.keys().filter(|path| path.extension().is_some_and(|e| e == "wal")) {
        let mut records = Vec::new();
        let _ = wal::inspect_segment(&*vfs, path, &mut |offset, record| {
            records.push((offset, *record));
            Ok(())
        });
        for (offset, record) in records.into_iter().filter(|(_, record)| record.header.last_sequence > layout.flushed) {
            let payload = wal::record_payload(&*vfs, path, offset, &record).unwrap();
            let bytes = offset as usize..(offset + record.file_len()) as usize;
            decode_group(&payload, |batch, operation| {
                let sequence = record.header.first_sequence + batch;
                let is_new = sequence > layout.flushed && !operation.key.starts_with(&TreeId::CATALOG.first_key());
                if is_new && operation.kind != crate::base::EntryKind::RangeDelete {
                    let mut of = vec![Unit { path: path.clone(), bytes: bytes.clone(), header: 136 }];
                    blobs_of(operation.kind, operation.value, &mut of);
                    units.entry(operation.key.to_vec()).or_default().insert(sequence, of);
                }
            });
        }
    }
    units
}
