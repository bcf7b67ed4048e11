//! Checks runs and views: as a whole and against each other if sound, otherwise unit by unit.

use super::checker::Checker;
use crate::{
    base::{EntryRef, Error, FileNumber, Result},
    platform::OpenMode,
    table::{DamagedUnit, Run, RunMeta, TableContext, walk_run_units},
    version::{FileSet, RunHandle},
    view::{Bounds, View, ViewMeta, damaged_view, damaged_view_file},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

pub struct RunJob {
    pub number: FileNumber,
    pub meta: Option<RunMeta>,
    pub handle: Option<Arc<RunHandle>>,
    pub is_missing: bool,
}

pub struct ViewJob {
    pub meta: ViewMeta,
    /// Its runs, by selector.
    pub runs: Vec<FileNumber>,
    pub bounds: Bounds,
    pub view: Option<Arc<View>>,
    pub is_missing: bool,
}

pub struct Files {
    pub checker: Arc<Checker>,
    pub table: TableContext,
    pub runs: Vec<RunJob>,
    pub views: Vec<ViewJob>,
    pub sound: Mutex<HashMap<FileNumber, Arc<Run>>>,
    pub next: AtomicUsize,
}

fn verify_own_view(handle: &RunHandle) -> Result<()> {
    let view = handle.view()?;
    view.verify()?;
    view.verify_against(handle.alone(), &Bounds { start: Vec::new(), end: None })
}

impl Files {
    pub fn check_runs(&self) {
        while let Some(job) = self.runs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            self.check_run(job);
        }
    }

    fn check_run(&self, job: &RunJob) {
        let path = FileSet::run_path(&self.checker.dir, job.number);
        if job.is_missing {
            let keys = job.meta.as_ref().map(|meta| (meta.smallest.clone(), meta.largest.clone()));
            return self.checker.missing(&path, "the run is missing, and the manifest names it", keys);
        }
        let opened = match (&job.handle, &job.meta) {
            (Some(handle), _) => Ok(Arc::clone(handle)),
            (None, Some(meta)) => Run::open(&self.table, &path, meta).map(|run| self.handle(run)),
            (None, None) => Run::open_unlisted(&self.table, &path, job.number).map(|run| self.handle(run)),
        };
        let mut visitor = |entry: &EntryRef<'_>| self.checker.entry(entry, &path, 0);
        let checked = opened.and_then(|handle| {
            let bytes = handle.run().verify_with(&mut visitor)?;
            verify_own_view(&handle)?;
            Ok((handle, bytes))
        });
        match checked {
            Ok((handle, bytes)) => {
                self.sound.lock().insert(job.number, Arc::clone(handle.run()));
                self.checker.read(&path, bytes);
            }
            Err(error) => self.walk_run(job, &error),
        }
    }

    fn handle(&self, run: Arc<Run>) -> Arc<RunHandle> {
        Arc::new(RunHandle::new(run, &self.table))
    }

    fn walk_run(&self, job: &RunJob, error: &Error) {
        let path = FileSet::run_path(&self.checker.dir, job.number);
        let walked =
            self.table.vfs.open(&path, OpenMode::Read).map_err(|e| Error::io("open", &path, e)).and_then(|file| {
                let mut visitor = |entry: &EntryRef<'_>| self.checker.entry(entry, &path, 0);
                let mut walked = walk_run_units(&*file, &path, job.meta.as_ref(), &mut visitor)?;
                if let Some(range) = walked.view.clone() {
                    walked.damaged.extend(damaged_view(&*file, &path, walked.file_id, range)?);
                }
                let len = file.len().map_err(|e| Error::io("read the length of", &path, e))?;
                Ok((walked.damaged, len))
            });
        match walked {
            Ok((damaged, len)) => {
                self.checker.read(&path, len);
                self.list(&path, damaged, error);
            }
            Err(error) => self.checker.error(&error, &path),
        }
    }

    fn list(&self, path: &std::path::Path, damaged: Vec<DamagedUnit>, error: &Error) {
        if damaged.is_empty() {
            self.checker.error(error, path);
        }
        damaged.into_iter().for_each(|unit| self.checker.unit(path, unit));
    }

    /// Checks a view, then compares it with its runs if they are sound.
    pub fn check_view(&self, job: &ViewJob) {
        let path = FileSet::view_path(&self.checker.dir, job.meta.number);
        if job.is_missing {
            return self.checker.missing(&path, "the view is missing, and the manifest names it", None);
        }
        let file = match self.table.vfs.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(e) => return self.checker.error(&Error::io("open", &path, e), &path),
        };
        self.checker.read(&path, job.meta.file_bytes);
        match damaged_view_file(&*file, &path, Some(&job.meta)) {
            Ok(damaged) if damaged.is_empty() => {}
            Ok(damaged) => return damaged.into_iter().for_each(|unit| self.checker.unit(&path, unit)),
            Err(error) => return self.checker.error(&error, &path),
        }
        let opened = job.view.clone().map_or_else(|| View::open(&self.table, &path, &job.meta), Ok);
        let runs: Option<Vec<Arc<Run>>> = {
            let sound = self.sound.lock();
            job.runs.iter().map(|number| sound.get(number).cloned()).collect()
        };
        let checked = opened.and_then(|view| {
            view.verify()?;
            runs.map_or(Ok(()), |runs| view.verify_against(&runs, &job.bounds))
        });
        if let Err(error) = checked {
            self.checker.error(&error, &path);
        }
    }
}
