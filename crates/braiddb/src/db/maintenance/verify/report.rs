//! Results of a verification.

use crate::base::{DatabaseFile, Error, FileNumber};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Result of [`crate::Db::verify`] and [`crate::Db::verify_path`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Number of files read, including damaged ones and log segments.
    pub files: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Problems; empty if the database is sound. Each damaged unit is listed once: a data block,
    /// view page, chunk of a value, record of the log or manifest, slot of CURRENT, or missing
    /// file.
    pub problems: Vec<VerifyProblem>,
    /// Number of further problems beyond the maximum of the list.
    pub problems_left_out: u64,
    /// Harmless oddities.
    pub notes: Vec<String>,
    /// Whether the database opens.
    pub opens: bool,
}

impl VerifyReport {
    /// Returns true if no problem was found.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.problems_left_out == 0
    }
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Bytes differ from those written.
    Damaged,
    /// A file is missing.
    Missing,
    /// The log ends with a torn or damaged record. A record cut off by a crash looks the same as a
    /// durable one damaged later.
    TornTail,
    /// A record holds an operand that its built-in merge function can never apply.
    CannotApply,
    /// The system or this build cannot read the file.
    Unreadable,
}

impl ProblemKind {
    /// Returns its name in the output of `braid verify --json`.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Damaged => "damaged",
            ProblemKind::Missing => "missing",
            ProblemKind::TornTail => "torn-tail",
            ProblemKind::CannotApply => "cannot-apply",
            ProblemKind::Unreadable => "unreadable",
        }
    }
}

/// A key of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeKey {
    /// Tree name, if its catalog entry was read.
    pub tree: Option<String>,
    /// Tree number.
    pub tree_id: u32,
    /// Key in the tree; in a tree with many values per key, followed by the value.
    pub key: Vec<u8>,
}

/// Range of keys that a problem affects. No other key is affected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AffectedKeys {
    /// Smallest key.
    pub from: TreeKey,
    /// Largest key.
    pub to: TreeKey,
}

/// A problem: its kind, place and affected keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProblem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Kind of the file.
    pub file: DatabaseFile,
    /// Number in the file name, if any.
    pub number: Option<FileNumber>,
    /// Path of the file.
    pub path: PathBuf,
    /// Offset of the damaged unit, in bytes.
    pub offset: u64,
    /// Length of the unit in bytes; 0 if unknown or if the file is missing.
    pub len: u64,
    /// Description.
    pub detail: String,
    /// Affected keys, if known.
    pub keys: Option<AffectedKeys>,
    /// Last commit before the problem, in the log.
    pub last_commit: Option<u64>,
    /// Other bytes of the file that could not be checked because of it.
    pub unchecked_bytes: u64,
}

impl VerifyProblem {
    pub(super) fn new(kind: ProblemKind, path: &Path, offset: u64, len: u64, detail: impl Into<String>) -> Self {
        let (file, number) = DatabaseFile::of(path);
        VerifyProblem {
            kind,
            file,
            number,
            path: path.to_owned(),
            offset,
            len,
            detail: detail.into(),
            keys: None,
            last_commit: None,
            unchecked_bytes: 0,
        }
    }

    /// Converts an error. Leaves out its advice, which a reader of this report has already
    /// followed.
    pub(super) fn of(error: &Error, path: &Path) -> VerifyProblem {
        match error {
            Error::Corruption(damage) => {
                VerifyProblem::new(ProblemKind::Damaged, &damage.path, damage.offset, 0, &damage.detail)
            }
            other => VerifyProblem::new(ProblemKind::Unreadable, path, 0, 0, other.to_string()),
        }
    }
}

impl fmt::Display for TreeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tree, self.tree_id) {
            (Some(name), _) => write!(f, "tree {name:?}")?,
            (None, 0) => write!(f, "the catalog")?,
            (None, id) => write!(f, "tree number {id}")?,
        }
        let shown = self.key.get(..SHOWN_KEY_BYTES).unwrap_or(&self.key);
        write!(f, " key \"{}\"{}", shown.escape_ascii(), if shown.len() < self.key.len() { ".." } else { "" })
    }
}

const SHOWN_KEY_BYTES: usize = 48;

impl fmt::Display for VerifyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            ProblemKind::Missing => write!(f, "{path}: {}", self.detail)?,
            _ => write!(f, "{path} at offset {}", self.offset)?,
        }
        if self.len > 0 {
            write!(f, ", {} bytes", self.len)?;
        }
        match self.kind {
            ProblemKind::Missing => {}
            ProblemKind::TornTail => write!(f, ": torn or damaged tail of the log: {}", self.detail)?,
            _ => write!(f, ": {}", self.detail)?,
        }
        if let Some(commit) = self.last_commit {
            write!(f, "; the last commit before it is {commit}")?;
        }
        if let Some(AffectedKeys { from, to }) = &self.keys {
            if from == to { write!(f, "; affects {from}")? } else { write!(f, "; affects {from} to {to}")? }
        }
        if self.unchecked_bytes > 0 {
            write!(f, "; {} bytes of the file could not be checked", self.unchecked_bytes)?;
        }
        Ok(())
    }
}

impl From<VerifyProblem> for Error {
    fn from(problem: VerifyProblem) -> Error {
        Error::corruption(problem.path, problem.offset, problem.detail)
    }
}

/// Progress of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Bytes checked.
    pub bytes: u64,
    /// Estimated total bytes.
    pub bytes_total: u64,
    /// Problems found so far.
    pub problems: u64,
}

/// Options of a verification.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Number of files read in parallel; 0 for the number of background threads, at most 4.
    pub threads: usize,
    /// Called after each file, from several threads.
    pub progress: Option<Arc<dyn Fn(VerifyProgress) + Send + Sync>>,
}

impl fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl VerifyOptions {
    /// Sets the number of files read in parallel.
    pub fn threads(mut self, threads: usize) -> VerifyOptions {
        self.threads = threads;
        self
    }

    /// Sets a function that receives progress.
    pub fn progress(mut self, report: impl Fn(VerifyProgress) + Send + Sync + 'static) -> VerifyOptions {
        self.progress = Some(Arc::new(report));
        self
    }
}
