//! A version: all partitions at one moment, with open files.
//!
//! A file that no version names any more is removed when its last handle is dropped.

use super::{Layout, Partition, PartitionLayout, RunHandle, partition_index::PartitionIndex};
use crate::{
    base::{FileNumber, Result},
    table::{Run, TableContext},
    view::{View, ViewMeta},
};
use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Debug, Default)]
pub struct Version {
    /// They cover the whole keyspace, in key order.
    pub partitions: Vec<Arc<Partition>>,
    partition_index: PartitionIndex,
}

impl Version {
    fn new(partitions: Vec<Arc<Partition>>) -> Version {
        let partition_index = PartitionIndex::new(partitions.iter().map(|p| key_head(&p.layout.start)).collect());
        Version { partitions, partition_index }
    }

    pub fn runs_of_others(&self, id: u64) -> BTreeSet<FileNumber> {
        let others = self.partitions.iter().filter(|partition| partition.id != id);
        others.flat_map(|p| p.layout.runs.iter().chain(&p.layout.loose)).copied().collect()
    }

    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        self.find_by_head(key_head(key), key)
    }

    #[inline(always)]
    pub fn find_by_head(&self, head: u64, key: &[u8]) -> usize {
        match self.find_by_prefix(head) {
            Some(number) => number,
            None => self.find_slow(head, key),
        }
    }

    /// Fast path: `None` if the head alone does not decide.
    #[inline(always)]
    pub fn find_by_prefix(&self, head: u64) -> Option<usize> {
        self.partition_index.find(head).filter(|&number| number < self.partitions.len())
    }

    /// General path for heads with which several partitions may begin.
    #[inline(never)]
    pub fn find_slow(&self, head: u64, key: &[u8]) -> usize {
        let first = self.partition_index.before(head);
        let ties = self.partition_index.ties(first, head);
        let at_most = self.partitions[first..first + ties].partition_point(|p| p.layout.start.as_slice() <= key);
        (first + at_most).saturating_sub(1)
    }
}

#[inline]
pub fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => key.iter().enumerate().fold(0, |head, (i, &byte)| head | u64::from(byte) << (56 - 8 * i)),
    }
}

/// One job or flush at a time changes it, under the manifest's lock.
#[derive(Clone, Debug)]
pub struct FileSet {
    dir: PathBuf,
    context: TableContext,
    runs: HashMap<FileNumber, Arc<RunHandle>>,
    views: HashMap<FileNumber, Arc<View>>,
    damaged_views: HashMap<FileNumber, String>,
}

impl FileSet {
    pub fn new(dir: &Path, context: &TableContext) -> FileSet {
        FileSet {
            dir: dir.to_owned(),
            context: context.clone(),
            runs: HashMap::new(),
            views: HashMap::new(),
            damaged_views: HashMap::new(),
        }
    }

    pub fn run_path(dir: &Path, number: FileNumber) -> PathBuf {
        dir.join(format!("{number:06}.run"))
    }

    pub fn view_path(dir: &Path, number: FileNumber) -> PathBuf {
        dir.join(format!("{number:06}.view"))
    }

    /// Opens missing files and keeps unchanged partitions of `before`. A view that cannot be opened
    /// is left out; readers then use the views in its runs.
    pub fn version(&mut self, layout: &Layout, before: Option<&Version>) -> Result<Version> {
        let kept: HashMap<u64, &Arc<Partition>> =
            before.map(|v| v.partitions.iter().map(|p| (p.id, p)).collect()).unwrap_or_default();
        let mut partitions = Vec::with_capacity(layout.partitions.len());
        for (&id, wanted) in &layout.partitions {
            let same = kept.get(&id).filter(|p| p.layout == *wanted && !self.must_reopen(p));
            partitions.push(match same {
                Some(partition) => Arc::clone(partition),
                None => Arc::new(self.open_partition(id, wanted, layout)?),
            });
        }
        partitions.sort_by(|a, b| a.layout.start.cmp(&b.layout.start));
        Ok(Version::new(partitions))
    }

    fn must_reopen(&self, partition: &Partition) -> bool {
        let number = partition.layout.view.as_ref().map(|v| v.number);
        partition.view.is_some() && number.is_some_and(|n| self.damaged_views.contains_key(&n))
    }

    fn open_partition(&mut self, id: u64, wanted: &PartitionLayout, layout: &Layout) -> Result<Partition> {
        let mut handles = |numbers: &[FileNumber]| -> Result<Vec<_>> {
            numbers.iter().map(|&number| self.run(number, layout)).collect()
        };
        let runs = handles(&wanted.runs)?;
        let loose = handles(&wanted.loose)?;
        let view = wanted.view.as_ref().and_then(|meta| self.view(meta));
        Ok(Partition::new(id, wanted.clone(), runs, loose, view))
    }

    fn run(&mut self, number: FileNumber, layout: &Layout) -> Result<Arc<RunHandle>> {
        if let Some(handle) = self.runs.get(&number) {
            return Ok(Arc::clone(handle));
        }
        let run = Run::open(&self.context, &FileSet::run_path(&self.dir, number), &layout.runs[&number])?;
        let handle = Arc::new(RunHandle::new(run, &self.context));
        self.runs.insert(number, Arc::clone(&handle));
        Ok(handle)
    }

    fn view(&mut self, meta: &ViewMeta) -> Option<Arc<View>> {
        if self.damaged_views.contains_key(&meta.number) {
            return None;
        }
        if let Some(view) = self.views.get(&meta.number) {
            return Some(Arc::clone(view));
        }
        let path = FileSet::view_path(&self.dir, meta.number);
        match View::open(&self.context, &path, meta) {
            Ok(view) => {
                self.views.insert(meta.number, Arc::clone(&view));
                Some(view)
            }
            Err(e) => {
                tracing::warn!(path = %path.display(), error = %e, "a view cannot be used and will be rebuilt");
                self.damaged_views.insert(meta.number, e.to_string());
                None
            }
        }
    }

    /// The next version omits the view.
    pub fn set_view_damaged(&mut self, number: FileNumber, reason: String) {
        self.damaged_views.insert(number, reason);
    }

    pub fn damaged_views(&self) -> &HashMap<FileNumber, String> {
        &self.damaged_views
    }

    /// Drops all files that the layout does not name, but leaves them on disk for their owner,
    /// another process. Views that failed to open are tried again.
    pub fn forget_unused(&mut self, layout: &Layout) {
        self.runs.retain(|number, _| layout.runs.contains_key(number));
        let names = |number: &FileNumber| {
            layout.partitions.values().any(|p| p.view.as_ref().is_some_and(|view| view.number == *number))
        };
        self.views.retain(|number, _| names(number));
        self.damaged_views.clear();
    }

    /// Removes each file that the layout does not name after its last reader.
    pub fn release_unused(&mut self, layout: &Layout) {
        self.runs.retain(|number, handle| {
            let used = layout.runs.contains_key(number);
            if !used {
                handle.run().mark_obsolete();
            }
            used
        });
        let used: std::collections::HashSet<FileNumber> =
            layout.partitions.values().filter_map(|p| p.view.as_ref().map(|v| v.number)).collect();
        self.views.retain(|number, view| {
            let keep = used.contains(number);
            if !keep {
                view.mark_obsolete();
            }
            keep
        });
        let (dir, vfs, views) = (&self.dir, &self.context.vfs, &self.views);
        self.damaged_views.retain(|number, _| {
            let keep = used.contains(number);
            // A view that failed to open has no handle that removes the file.
            if !keep && !views.contains_key(number) {
                let path = FileSet::view_path(dir, *number);
                match vfs.remove(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        tracing::warn!(path = %path.display(), error = %e, "a damaged view could not be removed");
                    }
                    _ => {}
                }
            }
            keep
        });
    }

    pub fn resident_bytes(&self) -> usize {
        self.runs.values().map(|h| h.resident_bytes()).sum::<usize>()
            + self.views.values().map(|v| v.resident_bytes()).sum::<usize>()
    }
}
