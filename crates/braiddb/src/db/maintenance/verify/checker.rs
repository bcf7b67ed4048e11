//! State that all threads of a verification share: findings, and values already read.

use super::report::{AffectedKeys, ProblemKind, TreeKey, VerifyOptions, VerifyProblem, VerifyProgress, VerifyReport};
use crate::{
    base::{Corruption, EntryKind, EntryRef, Error, FileNumber, Result, SequenceNumber, TreeId, split_internal_key},
    codec::{FILE_HEADER_LEN, MergeFunctions, Operands},
    db::engine::catalog::TreeState,
    table::{
        DamagedUnit,
        blob::{BlobFile, BlobRef, blob_path, visit_references},
    },
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Maximum number of listed problems; bounds the memory of the report.
const PROBLEMS_MAX: usize = 10_000;

/// Maximum number of values remembered as read (16 MB). Values beyond that may be read twice.
const READ_VALUES_MAX: usize = 1 << 20;

/// Smallest number of a user's merge function.
const FIRST_OWN_FUNCTION: u64 = 64;

pub type OpenBlob = Box<dyn Fn(FileNumber) -> Result<Arc<BlobFile>> + Send + Sync>;

/// Internal keys that a problem affects, before tree names are known.
type InternalKeys = Option<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
struct Findings {
    problems: Vec<(VerifyProblem, InternalKeys)>,
    seen: HashSet<(PathBuf, u64, &'static str)>,
    left_out: u64,
    notes: Vec<String>,
    files: BTreeSet<PathBuf>,
    trees: BTreeMap<TreeId, (SequenceNumber, String)>,
}

pub struct Checker {
    pub dir: PathBuf,
    open_blob: OpenBlob,
    functions: MergeFunctions,
    findings: Mutex<Findings>,
    read_values: Mutex<HashSet<(FileNumber, u64)>>,
    lost_blobs: Mutex<HashMap<FileNumber, ()>>,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    options: VerifyOptions,
}

impl Checker {
    pub fn new(dir: &Path, options: VerifyOptions, open_blob: OpenBlob) -> Arc<Checker> {
        Arc::new(Checker {
            dir: dir.to_owned(),
            open_blob,
            functions: MergeFunctions::built_in(),
            findings: Mutex::default(),
            read_values: Mutex::default(),
            lost_blobs: Mutex::default(),
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            options,
        })
    }

    pub fn threads(&self) -> usize {
        self.options.threads
    }

    pub fn problem(&self, problem: VerifyProblem, keys: InternalKeys) {
        let mut findings = self.findings.lock();
        if !findings.seen.insert((problem.path.clone(), problem.offset, problem.kind.name())) {
            return;
        }
        if findings.problems.len() < PROBLEMS_MAX {
            findings.problems.push((problem, keys));
        } else {
            findings.seen.remove(&(problem.path.clone(), problem.offset, problem.kind.name()));
            findings.left_out += 1;
        }
    }

    pub fn error(&self, error: &Error, path: &Path) {
        self.problem(VerifyProblem::of(error, path), None);
    }

    pub fn unit(&self, path: &Path, unit: DamagedUnit) {
        let DamagedUnit { offset, len, detail, keys, unchecked_bytes } = unit;
        let problem = VerifyProblem::new(ProblemKind::Damaged, path, offset, len, detail);
        self.problem(VerifyProblem { unchecked_bytes, ..problem }, keys);
    }

    pub fn missing(&self, path: &Path, detail: &str, keys: InternalKeys) {
        self.problem(VerifyProblem::new(ProblemKind::Missing, path, 0, 0, detail), keys);
    }

    pub fn has_torn_tail(&self) -> bool {
        self.findings.lock().problems.iter().any(|(problem, _)| problem.kind == ProblemKind::TornTail)
    }

    pub fn note(&self, note: String) {
        self.findings.lock().notes.push(note);
    }

    pub fn expect_bytes(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn read(&self, path: &Path, bytes: u64) {
        self.findings.lock().files.insert(path.to_owned());
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress();
    }

    fn progress(&self) {
        if let Some(report) = &self.options.progress {
            let bytes = self.bytes.load(Ordering::Relaxed);
            let bytes_total = self.bytes_total.load(Ordering::Relaxed).max(bytes);
            let problems = self.findings.lock().problems.len() as u64;
            report(VerifyProgress { bytes, bytes_total, problems });
        }
    }

    /// Checks the blob values and operands of an entry at `path` and `offset`.
    pub fn entry(&self, entry: &EntryRef<'_>, path: &Path, offset: u64) {
        if let Some((TreeId::CATALOG, [b'n', name @ ..])) = split_internal_key(entry.key) {
            self.tree(name, entry);
        }
        if entry.kind == EntryKind::Merge {
            self.operands(entry, path, offset);
        }
        if visit_references(entry.kind, entry.value, |blob| self.value(blob, entry.key)).is_none() {
            let detail = "a blob reference cannot be understood";
            let key = entry.key.to_vec();
            self.problem(VerifyProblem::new(ProblemKind::Damaged, path, offset, 0, detail), Some((key.clone(), key)));
        }
    }

    fn tree(&self, name: &[u8], entry: &EntryRef<'_>) {
        let Some(tree) = TreeState::decode(name, entry.value).filter(|_| entry.kind == EntryKind::Value) else {
            return;
        };
        let mut findings = self.findings.lock();
        let known = findings.trees.entry(tree.id).or_default();
        if known.0 <= entry.sequence {
            *known = (entry.sequence, tree.name.read().clone());
        }
    }

    fn operands(&self, entry: &EntryRef<'_>, path: &Path, offset: u64) {
        let key = || Some((entry.key.to_vec(), entry.key.to_vec()));
        let Some(operands) = Operands::decode(entry.value) else {
            let problem =
                VerifyProblem::new(ProblemKind::Damaged, path, offset, 0, "operands that cannot be understood");
            return self.problem(problem, key());
        };
        for operand in operands.iter().filter(|operand| operand.function < FIRST_OWN_FUNCTION) {
            if let Err(Error::InvalidArgument(reason)) = self.functions.check(operand.function, operand.bytes) {
                let problem = VerifyProblem::new(ProblemKind::CannotApply, path, offset, 0, reason);
                return self.problem(problem, key());
            }
        }
    }

    /// Reads a value in a blob file, unless it was read before.
    fn value(&self, blob: &BlobRef, key: &[u8]) {
        {
            let mut read = self.read_values.lock();
            if read.contains(&(blob.file, blob.offset)) || self.lost_blobs.lock().contains_key(&blob.file) {
                return;
            }
            if read.len() < READ_VALUES_MAX {
                read.insert((blob.file, blob.offset));
            }
        }
        let path = blob_path(&self.dir, blob.file);
        let file = match (self.open_blob)(blob.file) {
            Ok(file) => file,
            Err(error) => return self.lost_blob(blob.file, &path, &error),
        };
        match file.read_streaming(blob, &mut |_| {}) {
            Ok(()) => {}
            Err(error @ Error::Corruption(_)) => self.damaged_value(&file, blob, key, &path, &error),
            Err(error) => self.error(&error, &path),
        }
        self.read(&path, blob.stored_len);
    }

    fn damaged_value(&self, file: &BlobFile, blob: &BlobRef, key: &[u8], path: &Path, error: &Error) {
        let keys = Some((key.to_vec(), key.to_vec()));
        match file.damaged_parts(blob) {
            Ok(parts) if !parts.is_empty() => {
                parts.into_iter().for_each(|part| self.unit(path, DamagedUnit { keys: keys.clone(), ..part }));
            }
            Ok(_) => self.problem(VerifyProblem::of(error, path), keys),
            Err(error) => self.error(&error, path),
        }
    }

    /// Reports a blob file that cannot be opened as one problem, however many records refer to it.
    fn lost_blob(&self, number: FileNumber, path: &Path, error: &Error) {
        self.lost_blobs.lock().insert(number, ());
        match error {
            Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                self.missing(path, "the blob file is missing; values that records refer to are in it", None);
            }
            Error::Corruption(Corruption { detail, .. }) if detail.contains("missing") => {
                self.missing(path, detail, None)
            }
            Error::Corruption(Corruption { offset, detail, .. }) => {
                let detail = format!("{detail}; no value in the file can be read");
                self.unit(path, DamagedUnit::new(*offset..FILE_HEADER_LEN as u64, detail));
            }
            error => self.error(error, path),
        }
    }

    pub fn take(&self, other: &Checker) {
        let Findings { problems, files, .. } = std::mem::take(&mut *other.findings.lock());
        problems.into_iter().for_each(|(problem, keys)| self.problem(problem, keys));
        self.findings.lock().files.extend(files);
        self.bytes.fetch_add(other.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        self.progress();
    }

    pub fn finish(&self, opens: bool) -> VerifyReport {
        let Findings { problems, left_out, notes, files, trees, .. } = std::mem::take(&mut *self.findings.lock());
        let tree_key = |key: &[u8]| {
            let (id, key) = split_internal_key(key)?;
            let tree = trees.get(&id).map(|(_, name)| name.clone());
            Some(TreeKey { tree, tree_id: id.0, key: key.to_vec() })
        };
        let name = |(problem, keys): (VerifyProblem, InternalKeys)| {
            let keys = keys.and_then(|(from, to)| Some(AffectedKeys { from: tree_key(&from)?, to: tree_key(&to)? }));
            VerifyProblem { keys, ..problem }
        };
        let mut problems: Vec<VerifyProblem> = problems.into_iter().map(name).collect();
        problems.sort_by_key(|problem| (problem.file, problem.number, problem.offset));
        VerifyReport {
            files: files.len() as u64,
            bytes: self.bytes.load(Ordering::Relaxed),
            problems,
            problems_left_out: left_out,
            notes,
            opens,
        }
    }
}
